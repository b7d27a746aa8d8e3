"""Queue of a sweep's trials in Optuna's storage. Each trial is waiting, running on some machine, or finished.

All trials are enqueued when a sweep starts, so workers cannot create more. A trial whose process has ended is requeued
as the same trial: its setting is in the storage, and its fits continue from their checkpoints.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.pruners import NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from seqlab.comparison.rows import more_is_better
from seqlab.files.plain_tables import SQLITE, check_files, check_tables_to_write
from seqlab.sweeps.extend import beyond
from seqlab.sweeps.plan import Plan
from seqlab.sweeps.space import grid, read_space
from seqlab.tracking.provenance import host_id, is_gone, process_tags

BEAT, SILENCE = 30.0, 300.0
"""Seconds between a worker's heartbeats, and seconds without one until another machine requeues its trials."""


class Queue:
    """Trials of a plan.

    Args:
        url: SQLAlchemy URL of Optuna's storage.
        join: seconds to wait for a sweep started by another command; None = start or continue the sweep.

    Attributes:
        study: Optuna study.

    Raises:
        ValueError: the storage cannot be opened, or does not contain this sweep, or contains it with other settings.
    """

    def __init__(self, plan: Plan, url: str, *, join: float | None = None) -> None:
        self.plan = plan
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._file = Path(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None
        self._storage = self._open(url)
        with _quietly():
            pruner = SuccessiveHalvingPruner(min_resource=1) if plan.prune else NopPruner()
        directions = [
            StudyDirection.MAXIMIZE if more_is_better(one) else StudyDirection.MINIMIZE for one in plan.objectives
        ]
        begun = time.monotonic()
        while join is not None and "parent" not in self._attributes():
            if time.monotonic() - begun > join:
                raise ValueError(
                    f"there is no sweep {plan.name} to work on; the same command without --worker begins it"
                )
            time.sleep(0.5)
        with self._alone():
            self.study = optuna.create_study(
                storage=self._storage, study_name=plan.name, directions=directions, pruner=pruner, load_if_exists=True
            )
            before = self.study.user_attrs.get("settings", plan.settings)
            for name, now in plan.settings.items():
                if before.get(name, now) != now:
                    raise ValueError(
                        f"sweep {plan.name} was begun with {name} {before[name]}, not {now}; give another --name"
                    )
            if join is None:
                self._fill()

    def claim(self) -> tuple[Trial, dict[str, Any]] | None:
        """Claims a waiting trial for this worker; returns it and its setting, or None if none waits."""
        with self._alone():
            for waiting in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                self._beat(waiting._trial_id)  # before it is RUNNING, so that a worker that dies in between is detected
                if self._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING):
                    self.study.sampler = self._sampler(waiting.number)
                    trial = Trial(self.study, waiting._trial_id)
                    return trial, {name: _suggest(trial, name, of) for name, of in self.plan.space.items()}
        return None

    def extend(self) -> list[dict[str, Any]]:
        """Enqueues the settings at which an extended grid continues, and returns them."""
        if not self.plan.extend:
            return []
        steps = self.plan.space[self.plan.extend].choices  # type: ignore[attr-defined]
        sign = 1 if self.study.direction == StudyDirection.MINIMIZE else -1
        with self._alone():
            found = beyond(self.study.get_trials(deepcopy=False), self.plan.extend, steps, sign)
            for setting in found:
                self.study.enqueue_trial(setting, skip_if_exists=True)
        return found

    def beat(self, trials: list[Trial]) -> None:
        """Records a heartbeat for these trials."""
        for trial in trials:
            self._beat(trial._trial_id)

    def put_back(self, trial: Trial | FrozenTrial) -> None:
        """Puts a trial back into the queue."""
        self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def put_back_lost(self) -> list[int]:
        """Requeues the trials of lost workers; returns their numbers."""
        with self._alone():
            running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            lost = [trial for trial in running if _is_lost(trial.user_attrs["worker"])]
            for trial in lost:
                self.put_back(trial)
        return [trial.number for trial in lost]

    @property
    def left(self) -> int:
        """Number of unfinished trials."""
        return sum(not trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))

    def _attributes(self) -> dict[str, Any]:
        """Attributes of the study; empty if it does not exist."""
        try:
            return self._storage.get_study_user_attrs(self._storage.get_study_id_from_name(self.plan.name))
        except KeyError:
            return {}

    def _fill(self) -> None:
        """Enqueues missing trials; a restarted sweep may have more trials than before."""
        self.study.set_user_attr("settings", self.plan.settings)
        settings = grid(read_space(self.plan.vary)) if self.plan.sampler == "grid" else [{}] * self.plan.trials
        for setting in settings[len(self.study.get_trials(deepcopy=False)) :]:
            self.study.enqueue_trial(setting)

    def _sampler(self, number: int) -> BaseSampler:
        """Sampler seeded by the trial number, so that draws do not depend on the worker or on restarts."""
        if self.plan.sampler != "tpe":
            return RandomSampler(seed=number)
        with _quietly():
            return TPESampler(seed=number, constant_liar=True)

    def _beat(self, trial_id: int) -> None:
        self._storage.set_trial_user_attr(trial_id, "worker", process_tags() | {"beat": str(time.time())})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock for a SQLite file. SQLite does not lock rows on reading, so two workers could claim the same trial."""
        if self._file is None:
            yield
            return
        with FileLock(self._file.with_name(f".{self._file.name}.lock")):
            yield

    def _open(self, url: str) -> RDBStorage:
        if url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
            raise ValueError(f"--storage {url} is in memory and ends with its process; accepted: a file, {SQLITE}PATH")
        if self._file is not None:
            _check_file(self._file)
            self._file.parent.mkdir(parents=True, exist_ok=True)
        waits = {"connect_args": {"timeout": 60}} if self._file is not None else {}
        try:
            with self._alone():
                return RDBStorage(url, engine_kwargs=waits)
        except (SQLAlchemyError, ImportError, RuntimeError) as error:
            reason = " ".join(str(error).split("\n")[0].split())
            raise ValueError(f"--storage {shown(url)} cannot be opened: {reason}") from error


def _check_file(file: Path) -> None:
    """Checks that an existing file is an Optuna database."""
    check_files(file, "--storage")
    if not file.exists():
        return
    try:
        names = check_tables_to_write(file)
    except (sqlite3.Error, ValueError) as error:
        raise ValueError(f"--storage {file} cannot be opened: {error}") from error
    if names and ("studies" not in names or "experiments" in names):
        raise ValueError(f"--storage {file} holds other tables than Optuna's ({min(names)}); name another file")


@contextmanager
def told(url: str) -> Iterator[None]:
    """Converts storage errors while a sweep runs into a one-sentence error.

    Raises:
        OSError: the storage failed.
    """
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = str(error.__cause__ or error).split("\n")[0]
        raise OSError(
            f"--storage {shown(url)}: {reason}; its content is intact, and the same command continues"
        ) from error


def shown(url: str) -> str:
    """Storage URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "URL"


def _suggest(trial: Trial, name: str, of: Any) -> Any:
    if isinstance(of, FloatDistribution):
        return trial.suggest_float(name, of.low, of.high, log=of.log)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(name, of.low, of.high, log=of.log)
    return trial.suggest_categorical(name, of.choices)


def _is_lost(worker: dict[str, str]) -> bool:
    """True if a trial's worker is lost: its process has ended, or, on another machine, sent no beat for `SILENCE` s."""
    if worker["host.id"] == host_id():
        return is_gone(worker)
    return time.time() - float(worker["beat"]) > SILENCE


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
