"""Extension of a grid whose best value lies at one of its ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

BEYOND = 4
"""Maximum number of values tried beyond each end of a grid."""


def ladder(name: str, values: Sequence[str]) -> list[str]:
    """Values of a grid in rising order, with `BEYOND` more at each end, at the ratio of the two outermost.

    Raises:
        ValueError: a value is not a positive number, or occurs twice.
    """
    try:
        numbers = {float(value): value for value in values}
    except ValueError:
        numbers = {}
    rising = sorted(numbers)
    if len(rising) < len(values) or rising[0] <= 0:
        raise ValueError(f"--extend {name}: its values must be different positive numbers, got {','.join(values)}")
    below, above = (rising[0] / rising[1], rising[-1] / rising[-2])
    lower = [f"{rising[0] * below**k:.8g}" for k in range(BEYOND, 0, -1)]
    return [*lower, *map(numbers.__getitem__, rising), *(f"{rising[-1] * above**k:.8g}" for k in range(1, BEYOND + 1))]


def beyond(trials: Sequence[FrozenTrial], option: str, steps: Sequence[str], sign: int) -> list[dict[str, Any]]:
    """Next settings: for each combination of the other options, the value after the best, if no trial lies beyond it.

    A combination with an unfinished trial waits.

    Args:
        steps: values of the option, from `ladder`.
        sign: 1 if a lower objective is better, otherwise -1.
    """
    grids: dict[tuple[Any, ...], dict[int, FrozenTrial]] = {}
    for trial in trials:
        setting = trial.params or trial.system_attrs["fixed_params"]
        others = tuple(value for name, value in sorted(setting.items()) if name != option)
        grids.setdefault(others, {})[steps.index(setting[option])] = trial
    found = []
    for tried in grids.values():
        complete = [place for place, trial in tried.items() if trial.state == TrialState.COMPLETE]
        if not complete or not all(trial.state.is_finished() for trial in tried.values()):
            continue
        best = min(complete, key=lambda place: sign * tried[place].values[0])
        following = best - 1 if best == min(tried) else best + 1
        if following not in tried and 0 <= following < len(steps):
            found.append(tried[best].params | {option: steps[following]})
    return found
