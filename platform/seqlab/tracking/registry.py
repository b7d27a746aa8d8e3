"""MLflow's model registry: one registered model per experiment, with each promoted bundle as a version."""

from __future__ import annotations

import re
import shlex
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from seqlab.tracking.artifact_place import check_folder
from seqlab.tracking.runs import TrackedRun
from seqlab.tracking.writes import UPLOAD_SECONDS, answer_timeout

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

CHAMPION = "champion"
"""Alias of the version to use."""
SEAL_TAG = "seal"


class Version(NamedTuple):
    """A version of a registered model.

    Attributes:
        model: name of the registered model.
        number: version number, from 1.
        run: name of the run that the bundle was exported from.
        precision, target: precision and target of the bundle.
    """

    model: str
    number: int
    run: str
    precision: str
    target: str

    @property
    def uri(self) -> str:
        """MLflow URI of the model's champion."""
        return f"models:/{self.model}@{CHAMPION}"

    def __str__(self) -> str:
        return f"version {self.number} ({self.run}, {self.precision}, {self.target})"


def model_name(experiment: str) -> str:
    """Name of an experiment's registered model: the experiment name without characters that MLflow refuses."""
    return re.sub("[/:]+", "-", experiment).strip(". ") or "experiment"


def register(run: TrackedRun, precision: str, target: str, seal: str, save: Callable[[Path], None]) -> Version:
    """Adds an MLflow model to a run's artifacts and registers it, or returns the existing version of this bundle.

    Args:
        precision, target, seal: properties of the model's bundle, stored as tags.
        save: writes the model to a new folder.

    Raises:
        UnreachableError: the store does not answer now.
        MlflowException: the store refuses the model.
    """
    # Each bundle of a run is a separate version, and the files of a version never change.
    place = f"models/{precision}-{uuid.uuid4().hex[:8]}"
    name = model_name(run.experiment)
    with TemporaryDirectory() as folder, run.store.calls() as client:
        for version in _versions(client, run):  # the store answers, so a longer timeout is safe below
            if version.tags.get(SEAL_TAG) == seal:
                return _version(version)
        made = Path(folder) / "model"
        if run.store.remote:
            files = run.store.files(run.entity)
            save(made)
            with answer_timeout(UPLOAD_SECONDS):
                files.log_artifacts(str(made), place)  # type: ignore[no-untyped-call]
        else:  # MLflow would write to the store's path at the time the run was created
            copied = check_folder(run.artifacts / place, run.store.root, run.id)
            save(made)
            shutil.copytree(made, copied)
        _create_model(client, name)
        source = f"runs:/{run.id}/{place}"
        tags = {"precision": precision, "target": target, "run": run.name, SEAL_TAG: seal}
        return _version(client.create_model_version(name, source, run.id, tags=tags))


def promote(run: TrackedRun, version: Version | None = None) -> tuple[Version | None, Version]:
    """Makes a version of a run, by default the newest, the champion of its model.

    Returns:
        The previous champion, if any, and the new one.

    Raises:
        ValueError: the run has no registered version.
        UnreachableError: the store does not answer now.
    """
    name = model_name(run.experiment)
    with run.store.calls() as client:
        found = _versions(client, run)
        if not found:
            export = f"seqlab export {shlex.quote(run.name)} --out DIR"
            raise ValueError(f"run {run.name} has no version of {name}; promote a bundle of it: {export}, promote DIR")
        chosen = [one for one in found if version is None or int(one.version) == version.number]
        newest = max(chosen, key=lambda one: int(one.version))
        number = client.get_registered_model(name).aliases.get(CHAMPION)
        before = None if number is None else client.get_model_version(name, number)
        client.set_registered_model_alias(name, CHAMPION, newest.version)
    return None if before is None else _version(before), _version(newest)


def _versions(client: MlflowClient, run: TrackedRun) -> list[ModelVersion]:
    """Versions of the run's model that come from the run."""
    found = client.search_model_versions(f"run_id = '{run.id}'")
    return [version for version in found if version.name == model_name(run.experiment)]


def _create_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _version(stored: ModelVersion) -> Version:
    run, precision, target = (stored.tags.get(name, "unknown") for name in ("run", "precision", "target"))
    return Version(stored.name, int(stored.version), run, precision, target)
