"""Lookup of runs by id, name or checkpoint, and detection of killed runs. Finding a run writes nothing."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import yaml

from seqlab.files.plain_values import load_quickly, read_yaml
from seqlab.files.regular_file import check_regular
from seqlab.tracking.artifact_place import are_names, check_folder
from seqlab.tracking.journal import replay_all, tell_kept
from seqlab.tracking.provenance import host_id, is_gone
from seqlab.tracking.readable import BrokenRun, experiment_names, number, read_points, read_runs, stored_runs
from seqlab.tracking.store import OFFLINE_TAG, Store, UnreachableError
from seqlab.tracking.writes import FAILURE_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run

    from seqlab.tracking.stored import StoredRun

MOST_LISTED = 10
PARENT_TAG = "mlflow.parentRunId"
"""Tag of a sweep's fits; MLflow shows them below the sweep's run."""
SWEEP_TAG = "sweep.trials"
"""Tag of a sweep's own run; fits do not have it."""
GONE = "the process is gone: it was killed, or the machine stopped"
"""Failure message of a run that could not record one itself."""


@dataclass(frozen=True)
class TrackedRun:
    """A run read from the store.

    Attributes:
        id: MLflow's id of the run.
        name: name of the run; not unique.
        experiment: name of the experiment.
        status: RUNNING, FINISHED, FAILED or KILLED; a RUNNING run of this host whose process has ended is KILLED.
        started: start time in milliseconds since 1970.
        params: flat configuration.
        metrics: last value of each metric.
        tags: all tags, such as provenance.
        store: store of the run.
        entity: the run as an MLflow entity.
        found_by: checkpoint by which the run was found; None = found by id or name.
    """

    id: str
    name: str
    experiment: str
    status: str
    started: int
    params: dict[str, str] = field(repr=False)
    metrics: dict[str, float] = field(repr=False)
    tags: dict[str, str] = field(repr=False)
    store: Store = field(repr=False)
    entity: Run | StoredRun = field(repr=False)
    found_by: Path | None = None

    @cached_property
    def artifacts(self) -> Path:
        """Folder of the artifacts; with a server, the folder of those on this machine.

        Raises:
            ValueError: as `Store.artifacts`.
        """
        return self.store.artifacts(self.entity)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Full, nested configuration.

        Raises:
            ValueError: the run has no valid configuration.
        """
        path = self.artifact("config.yaml")
        if path is None:
            raise ValueError(f"run {self.name} ({self.id}) has no config.yaml: it was not made by `seqlab fit`")
        try:
            config = read_yaml(path.read_text(encoding="utf-8"), load_quickly)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(f"{path} is not the config of a run: {error}") from error
        if not isinstance(config, dict):
            raise ValueError(f"{path} is not the config of a run: it holds {str(config)[:60]!r}")
        return config

    @property
    def best_checkpoint(self) -> Path | None:
        """Checkpoint of the best validation."""
        return self._checkpoint("best")

    @property
    def last_checkpoint(self) -> Path | None:
        """Checkpoint to continue from."""
        return self._checkpoint("last")

    @property
    def checkpoint(self) -> Path | None:
        """Checkpoint by which the run was found, else the best, else the last."""
        return self.found_by or self.best_checkpoint or self.last_checkpoint

    def artifact(self, name: str) -> Path | None:
        """Path of an artifact, downloaded from the server if it is not on this machine; None if it does not exist.

        Raises:
            ValueError: the artifact is outside the run's folder, or the folder is outside the store.
        """
        parts = PurePath(name).parts
        if not parts or PurePath(name).is_absolute() or ".." in parts or not are_names(parts):
            raise ValueError(
                f"run {self.name} ({self.id}) has the artifact {name[:100]!r}, which is not a file of its folder"
            )
        path = check_folder(self.artifacts / name, self.store.root, self.id)
        check_regular(path, "artifact")
        if path.exists() or not self.store.remote:
            return path if path.exists() else None
        with self.store.calls(reads=True):
            from mlflow.exceptions import MlflowException

            from seqlab.tracking.bounded_answers import downloading

            files = self.store.files(self.entity)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Downloaded atomically, because local files are never downloaded again.
            with (
                TemporaryDirectory(prefix=".fetched-", dir=self.artifacts) as folder,
                downloading(Path(folder)) as download,
            ):
                try:
                    fetched = files.download_artifacts(name, folder)  # type: ignore[no-untyped-call]
                except MlflowException as error:
                    if why := download.broken_off:
                        raise UnreachableError(
                            f"MLflow at {self.store.uri} did not send all of {name}: {why}"
                        ) from error
                    return None
                os.replace(fetched, path)
            return path

    def history(self, metric: str) -> list[tuple[int, float]]:
        """All (step, value) points of a metric, sorted by step; a value that is not a number becomes NaN."""
        points = read_points(self.store, self.entity, metric)
        known = [(step, number(value)) for step, value in points if isinstance(step, int)]
        return sorted(known, key=lambda point: (point[0], not math.isnan(point[1]), point[1]))

    def _checkpoint(self, which: str) -> Path | None:
        name = self.tags.get(f"checkpoint.{which}")
        if name is not None and self.store.remote and not (self.artifacts / name).exists():
            for beside in self._listed(str(PurePath(name).parent)):
                if beside.startswith(f"{name}.shards-"):
                    self.artifact(beside)
        return None if name is None else self.artifact(name)

    def _listed(self, folder: str) -> list[str]:
        """Paths of the artifacts in a folder on the server."""
        with self.store.calls(reads=True):
            from mlflow.exceptions import MlflowException

            try:
                return [file.path for file in self.store.files(self.entity).list_artifacts(folder)]
            except MlflowException:
                return []


def find_run(text: str, store: Store | None = None, experiment: str | None = None) -> TrackedRun:
    """Finds a run by id, unique id prefix, name, or checkpoint path. Among runs of the same name, chooses the only one
    with a checkpoint, or the only finished one of these.

    Args:
        text: id, id prefix, name or path.
        experiment: experiment to search; None = all.

    Raises:
        ValueError: no run matches, the run cannot be read, or several match; the message lists them.
        UnreachableError: the server does not answer.
    """
    store = store or Store()
    if os.path.isfile(text):  # os.path.isfile also accepts a name too long for a file
        return _run_of_checkpoint(Path(text), store)
    if not os.path.isdir(text):  # a run may be named like a folder
        check_regular(text, "checkpoint")
    store.check_exists()
    for condition in _conditions(text):
        runs, broken = search_all(store, condition, experiment)
        if broken and not runs:
            raise ValueError(f"a run cannot be read: {broken[0]}")
        trained = [run for run in runs if {"checkpoint.best", "checkpoint.last"} & run.tags.keys()]
        finished = [run for run in trained if run.status == "FINISHED"]
        for candidates in (runs, trained, finished):
            if len(candidates) == 1:
                return candidates[0]
        if runs:
            raise ValueError(f"{text!r} names more than one run: {listed(runs)}; give the id")
    place = f"experiment {experiment!r}" if experiment else store.uri
    raise ValueError(f"no run has the id, the name or the checkpoint {text!r} in {place}; seqlab compare lists runs")


def unfinished_runs(experiment: str, config_hash: str, store: Store | None = None) -> list[TrackedRun]:
    """Failed or killed runs of an experiment with this configuration, newest first.

    Runs without a checkpoint to continue from are left out.
    """
    store = store or Store()
    if not store.exists:
        return []
    settle(store)
    runs = search(store, f"tags.config_hash = '{config_hash}'", experiment)
    return [run for run in runs if run.status in ("FAILED", "KILLED") and "checkpoint.last" in run.tags]


def search(store: Store, condition: str = "", experiment: str | None = None) -> list[TrackedRun]:
    """Readable runs that meet a condition in MLflow's filter language, newest first."""
    return search_all(store, condition, experiment)[0]


def search_all(
    store: Store, condition: str = "", experiment: str | None = None
) -> tuple[list[TrackedRun], list[BrokenRun]]:
    """Runs that `search` finds, and the broken runs, which cannot be read."""
    tell_kept(store)
    if not condition and (stored := stored_runs(store, experiment)) is not None:
        return [_tracked(run, name, store) for name, run in stored], []
    names = experiment_names(store)
    runs, broken = read_runs(store, [key for key, name in names.items() if experiment in (None, name)], condition)
    return [_tracked(run, names.get(run.info.experiment_id, ""), store) for run in runs], broken


def condition(name: str, value: str) -> str:
    """Condition in MLflow's filter language that a field equals a text.

    Raises:
        ValueError: the language cannot express the condition.
    """
    if "'" in value and '"' in value:
        raise ValueError(f"MLflow cannot look for {value!r}, which has both kinds of quotation marks")
    quote = '"' if "'" in value else "'"
    return f"{name} = {quote}{value}{quote}"


def settle(store: Store) -> None:
    """First step of a command that writes: sends unsent writes, and marks runs KILLED whose process has ended.

    A process that was killed outright cannot do this itself. A server that does not answer is skipped.
    """
    if not store.exists:
        return
    try:
        if replay_all(store) or not store.remote:
            _mark_killed(store)
    except UnreachableError:
        pass


def listed(runs: list[TrackedRun]) -> str:
    """One-line list of runs for a message."""
    texts = [f"{run.name} ({run.id[:8]}, {run.status}, {run.experiment})" for run in runs[:MOST_LISTED]]
    more = len(runs) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _mark_killed(store: Store) -> None:
    for run in search(store, f"attributes.status = 'RUNNING' and tags.`host.id` = '{host_id()}'"):
        if run.status == "KILLED":
            with store.calls() as client:
                client.set_tag(run.id, FAILURE_TAG, GONE)
                client.set_terminated(run.id, "KILLED")


def _run_of_checkpoint(path: Path, store: Store) -> TrackedRun:
    from seqlab.checkpoints.io import read_checkpoint

    stored = read_checkpoint(path, weights=False).get("seqlab")
    run_id = stored.get("run_id") if isinstance(stored, dict) else None
    if not isinstance(run_id, str):
        raise ValueError(f"checkpoint {path} belongs to no run: it was saved by an untracked fit")
    return replace(find_run(run_id, store), found_by=path)


def _conditions(text: str) -> list[str]:
    """Filters for a run by id, name and id prefix, most specific first."""
    conditions = []
    if re.fullmatch(r"[0-9a-f]{32}", text):
        conditions += [f"attributes.run_id = '{text}'", f"tags.`{OFFLINE_TAG}` = '{text}'"]
    with suppress(ValueError):
        conditions.append(condition("attributes.run_name", text))
    if re.fullmatch(r"[0-9a-f]{1,31}", text):
        conditions.append(f"attributes.run_id LIKE '{text}%'")
    return conditions


def _tracked(run: Run | StoredRun, experiment: str, store: Store) -> TrackedRun:
    info, data = run.info, run.data
    killed = info.status == "RUNNING" and data.tags.get("host.id") == host_id() and is_gone(data.tags)
    return TrackedRun(
        id=info.run_id,
        name=info.run_name or info.run_id[:8],
        experiment=experiment,
        status="KILLED" if killed else info.status,
        started=info.start_time,
        params=data.params,
        metrics={name: number(value) for name, value in data.metrics.items()},
        tags=data.tags | ({FAILURE_TAG: GONE} if killed else {}),
        store=store,
        entity=run,
    )
