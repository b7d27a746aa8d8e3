"""MLflow's model registry: each exported bundle is a version of one registered model an experiment."""

from __future__ import annotations

import re
import shlex
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from seqlab.tracking.runs import TrackedRun
from seqlab.tracking.writes import UPLOAD_SECONDS, answer_timeout

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

CHAMPION = "champion"
"""The alias of the version to use."""


class Version(NamedTuple):
    """A version of a registered model.

    Attributes:
        model: the model's name.
        number: 1 is the first.
        run: the name of the run that it was exported from.
        precision, target: of its bundle.
    """

    model: str
    number: int
    run: str
    precision: str
    target: str

    @property
    def uri(self) -> str:
        """MLflow's address of the model's champion."""
        return f"models:/{self.model}@{CHAMPION}"

    def __str__(self) -> str:
        return f"version {self.number} ({self.run}, {self.precision}, {self.target})"


def model_name(experiment: str) -> str:
    """The registered model of an experiment: its name, without what MLflow refuses in one."""
    return re.sub("[/:]+", "-", experiment).strip(". ") or "experiment"


def register(run: TrackedRun, precision: str, target: str, save: Callable[[Path], None]) -> Version:
    """Adds an MLflow model to the artifacts of a run and registers it as a version.

    Args:
        precision, target: of the model's bundle; they become tags.
        save: writes the model to a new folder.

    Raises:
        UnreachableError: the store does not answer now.
        MlflowException: it refuses.
    """
    # Two exports of one run are two versions, and a version's files never change.
    place = f"models/{precision}-{uuid.uuid4().hex[:8]}"
    name = model_name(run.experiment)
    with TemporaryDirectory() as folder, run.store.calls() as client:
        client.get_run(run.id)  # the store answers: now it may take its time
        run.store.check_files(run.entity)
        save(Path(folder) / "model")
        if run.store.remote:
            with answer_timeout(UPLOAD_SECONDS):
                client.log_artifacts(run.id, str(Path(folder) / "model"), place)
        else:  # MLflow would write where the store was when the run was made
            shutil.copytree(Path(folder) / "model", run.artifacts / place)
        _create_model(client, name)
        source = f"runs:/{run.id}/{place}"
        tags = {"precision": precision, "target": target, "run": run.name}
        return _version(client.create_model_version(name, source, run.id, tags=tags))


def promote(run: TrackedRun) -> tuple[Version | None, Version]:
    """Makes the newest version of a run the champion of its model.

    Returns:
        The champion before, if there was one, and now.

    Raises:
        ValueError: the run has no version.
        UnreachableError: the store does not answer now.
    """
    name = model_name(run.experiment)
    with run.store.calls() as client:
        found = [version for version in client.search_model_versions(f"run_id = '{run.id}'") if version.name == name]
        if not found:
            export = f"seqlab export {shlex.quote(run.name)} --out DIR"
            raise ValueError(f"run {run.name} has no bundle to promote; make one: {export}")
        newest = max(found, key=lambda version: int(version.version))
        number = client.get_registered_model(name).aliases.get(CHAMPION)
        before = None if number is None else client.get_model_version(name, number)
        client.set_registered_model_alias(name, CHAMPION, newest.version)
    return None if before is None else _version(before), _version(newest)


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
