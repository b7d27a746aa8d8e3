"""What a sweep found: its table, the best config, and how much each option matters."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev
from typing import TYPE_CHECKING, Any

import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from seqlab.sweeps.fits import run_of
from seqlab.sweeps.plan import Plan
from seqlab.tracking.params import RUN_SPECIFIC, short_names, to_yaml
from seqlab.tracking.store import Store

if TYPE_CHECKING:
    from rich.table import Table


def best_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The best one; of several objectives those that none is better than in all. Empty where none is complete."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        return []
    return [study.best_trial] if len(study.directions) == 1 else study.best_trials


def table(plan: Plan, study: optuna.Study) -> Table:
    """The trials, the best first; of several objectives by the first of them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = list(plan.vary)
    titles = short_names(names)
    result = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for title in ("trial", *(titles[name] for name in names), *plan.objectives):
        result.add_column(Text(title), justify="right")
    result.add_column("state", overflow="fold")
    best = {trial.number for trial in best_trials(study)}
    sign = 1 if study.directions[0] == StudyDirection.MINIMIZE else -1
    trials = study.get_trials(deepcopy=False)
    for trial in sorted(trials, key=lambda trial: _order(trial, sign)):
        state = trial.state.name
        said = f"{state}: {trial.user_attrs['error']}" if "error" in trial.user_attrs else state
        cells = [str(trial.number), *(_short(trial.params.get(name)) for name in names)]
        cells += [_value(trial, k) for k in range(len(plan.objectives))]
        result.add_row(*map(Text, (*cells, said)), style="bold" if trial.number in best else None)
    return result


def importance(plan: Plan, study: optuna.Study) -> dict[str, dict[str, float]]:
    """The share of each option in how an objective varies, by fANOVA (Hutter et al. 2014), by objective.

    Empty where fewer than two trials are complete, or all have the same value.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    shares: dict[str, dict[str, float]] = {}
    for k, objective in enumerate(plan.objectives):
        if len({trial.values[k] for trial in complete}) > 1:
            evaluator = FanovaImportanceEvaluator(seed=0)
            target = lambda trial, k=k: trial.values[k]  # noqa: E731
            shares[objective] = dict(get_param_importances(study, evaluator=evaluator, target=target))
    return shares


def config_of(plan: Plan, trial: int, store: Store) -> str:
    """The config of a trial's first fit as YAML that `fit --config` takes."""
    run = run_of(plan, trial, 0, store)
    assert run is not None
    return to_yaml({name: value for name, value in run.config.items() if name not in RUN_SPECIFIC})


def _order(trial: FrozenTrial, sign: int) -> tuple[bool, bool, float, int]:
    complete = trial.state == TrialState.COMPLETE
    return not complete, trial.state == TrialState.FAIL, sign * trial.values[0] if complete else 0.0, trial.number


def _value(trial: FrozenTrial, k: int) -> str:
    """The mean over the seeds, and their standard deviation; of a trial that was stopped, where it was."""
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return f"{trial.intermediate_values[max(trial.intermediate_values)]:.4g}"
    if trial.state != TrialState.COMPLETE:
        return "-"
    seeds: Sequence[Sequence[float]] = trial.user_attrs["seeds"]
    spread = f" ± {stdev(values[k] for values in seeds):.2g}" if len(seeds) > 1 else ""
    return f"{trial.values[k]:.5g}{spread}"


def _short(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
