"""Results of a sweep: its table, the best config, and the importance of each option."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from seqlab.comparison.statistics import mean
from seqlab.sweeps.fits import run_of
from seqlab.sweeps.plan import Plan
from seqlab.tracking.params import RUN_SPECIFIC, short_names, to_yaml
from seqlab.tracking.store import Store

if TYPE_CHECKING:
    from rich.table import Table


FEWEST = 10
"""Trials of which a forest can tell what an objective depends on."""
LETTERS = 24
"""Maximum characters of an option value in a one-line row."""


def best_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The best trial, or the Pareto front of several objectives; empty if no trial is complete."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        return []
    return [study.best_trial] if len(study.directions) == 1 else study.best_trials


def table(plan: Plan, study: optuna.Study, rows: int | None = None) -> Table:
    """Table of the started trials, sorted by the first objective, best first.

    Args:
        rows: maximum number of rows, including running trials, on one line each; None = all, in full.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    titles, space = short_names(list(plan.vary)), plan.space
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, caption_justify="left")
    result.add_column("trial", justify="right", no_wrap=True)
    for name, of in space.items():
        chosen = isinstance(of, CategoricalDistribution)
        result.add_column(Text(titles[name]), justify="left" if chosen else "right", no_wrap=not chosen)
    for title in plan.objectives:
        result.add_column(Text(title), justify="right", no_wrap=True)
    result.add_column("state", no_wrap=True)
    best = {trial.number for trial in best_trials(study)}
    sign = 1 if study.directions[0] == StudyDirection.MINIMIZE else -1
    trials = sorted(study.get_trials(deepcopy=False), key=lambda trial: _order(trial, sign))
    running = [trial for trial in trials if trial.state == TrialState.RUNNING]
    ended = [trial for trial in trials if trial.state.is_finished()]
    shown = ended if rows is None else ended[: max(0, rows - len(running))]
    for trial in (*shown, *running):
        options = [_short(trial.params.get(name), None if rows is None else LETTERS) for name in space]
        cells = [str(trial.number), *options, *(_value(trial, k) for k in range(len(plan.objectives)))]
        result.add_row(*map(Text, (*cells, trial.state.name)), style="bold" if trial.number in best else None)
    left = {"more have ended": len(ended) - len(shown), "wait": len(trials) - len(ended) - len(running)}
    result.caption = " · ".join(f"{count} {what}" for what, count in left.items() if count) or None
    return result


def failures(study: optuna.Study) -> dict[str, list[int]]:
    """Numbers of the failed trials, by error."""
    failed: dict[str, list[int]] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.FAIL,)):
        failed.setdefault(trial.user_attrs["error"], []).append(trial.number)
    return failed


def importance(plan: Plan, study: optuna.Study) -> dict[str, dict[str, float]]:
    """Share of each option in an objective's variance, from fANOVA (Hutter et al. 2014), by objective.

    Empty if one option varies, fewer than `FEWEST` trials are complete, or all have the same value or setting.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(plan.vary) < 2 or len(complete) < FEWEST:
        return {}
    shares: dict[str, dict[str, float]] = {}
    for k, objective in enumerate(plan.objectives):
        if len({trial.values[k] for trial in complete}) > 1:
            evaluator = FanovaImportanceEvaluator(seed=0)
            target = lambda trial, k=k: trial.values[k]  # noqa: E731
            with suppress(RuntimeError):  # the same setting tried twice, so no option varies
                shares[objective] = dict(get_param_importances(study, evaluator=evaluator, target=target))
    return shares


def config_of(plan: Plan, trial: int, store: Store) -> str:
    """Config of a trial's first fit, as YAML for `fit --config`."""
    run = run_of(plan, trial, 0, store)
    assert run is not None
    return to_yaml({name: value for name, value in run.config.items() if name not in RUN_SPECIFIC})


def _order(trial: FrozenTrial, sign: int) -> tuple[bool, bool, float, int]:
    complete = trial.state == TrialState.COMPLETE
    return not complete, trial.state == TrialState.FAIL, sign * trial.values[0] if complete else 0.0, trial.number


def _value(trial: FrozenTrial, k: int) -> str:
    """Mean and its 95% interval over the seeds; for a pruned trial, its last reported value."""
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return f"{trial.intermediate_values[max(trial.intermediate_values)]:.4g}"
    if trial.state != TrialState.COMPLETE:
        return "-"
    seeds: Sequence[Sequence[float]] = trial.user_attrs["seeds"]
    spread = f" ± {mean([values[k] for values in seeds]).half_width:.2g}" if len(seeds) > 1 else ""
    return f"{trial.values[k]:.5g}{spread}"


def _short(value: Any, most: int | None) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"
