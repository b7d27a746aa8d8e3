"""Writes of a run, as JSON objects `{"op": ...}`, and their delivery to MLflow.

Sending a write twice is harmless: points already stored are skipped, and everything else is overwritten.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.tracking.params import RUN_SPECIFIC
from seqlab.tracking.store import OFFLINE_TAG, Store

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Write = dict[str, Any]
Point = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970 and step."""

CHANGED_TAG = "seqlab.changed_params"
DATASET_TAG = "dataset"
SCORED_TAG = "task.scored_as"
EVALUATED_TAG = "{}.data"
"""Tag of `test` and `validate` with the data that the run was last evaluated on."""
FAILURE_TAG = "failure"
MATCHED_TAG, COSTS_TAG = "matched", "matched.costs"
"""Tags of a fit sized by `--match`: its budget, and the costs that were and were not matched."""
MAX_TAG_LENGTH, MAX_DIGEST_LENGTH = 5000, 36
UPLOAD_SECONDS = 600

log = logging.getLogger("seqlab")


class Sender:
    """Sends the writes of one run.

    Args:
        store: store to send to.
        run_id: id of the run, or its local id if it could not be created at once.

    Attributes:
        stored_id: id of the run in the store; None = not known yet.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id
        self.stored_id: str | None = None
        self._last_steps: dict[str, int] | None = None

    def send(self, write: Write) -> None:
        """Sends one write.

        Raises:
            UnreachableError: the store does not answer now.
            ValueError: the run cannot be created.
            MlflowException: the store refuses the write.
        """
        with self.store.calls() as client:
            if self.stored_id is None and (self.store.remote or write["op"] == "create"):
                self.stored_id = _known_run(self.store, client, self.run_id)
                if self.stored_id is None and write["op"] != "create":
                    self.stored_id = self.run_id
            if write["op"] == "create":
                if self.stored_id is None:
                    experiment = self.store.experiment_id(write["experiment"])
                    with _id_of_ours(self.store, self.run_id):
                        run = client.create_run(experiment, write["time"], _cut(write["tags"]), write["name"])
                        self.stored_id = run.info.run_id
                return
            run_id = self.stored_id or self.run_id
            match write["op"]:
                case "points":
                    self._send_points(client, run_id, write["points"])
                case "scores":
                    _log_metrics(client, run_id, write["points"])
                case "params":
                    _send_params(client, run_id, write["params"])
                case "tags":
                    _send_tags(client, run_id, write["tags"])
                case "dataset":
                    _send_dataset(client, run_id, write["dataset"], write.get("context", "training"))
                case "upload":
                    self._upload(client, run_id, Path(write["source"]), write["folder"])
                case "status" if write["status"] == "RUNNING":
                    _start_again(client, run_id)
                case "status":
                    client.set_terminated(run_id, write["status"], write["time"])

    def _upload(self, client: MlflowClient, run_id: str, source: Path, folder: str) -> None:
        """Uploads a file from the run's local folder.

        Raises:
            ValueError: the file is outside the run's folder, or would not be uploaded to the server itself.
        """
        if not source.exists():
            log.warning("%s is gone and is not uploaded to run %s", source, run_id)
            return
        run = client.get_run(run_id)  # the server answers, so a longer timeout is safe below
        files = self.store.files(run)
        own = (self.store.artifacts(run), self.store.root / self.run_id / "artifacts")
        if not any(source.resolve().is_relative_to(place.resolve()) for place in own):
            raise ValueError(f"{source} is not a file of the run, whose files on this machine are in {own[0]}")
        with answer_timeout(UPLOAD_SECONDS):
            if source.is_dir():
                files.log_artifacts(str(source), f"{folder}/{source.name}".lstrip("/"))  # type: ignore[no-untyped-call]
            else:
                files.log_artifact(str(source), folder or None)  # type: ignore[no-untyped-call]

    def _send_points(self, client: MlflowClient, run_id: str, points: list[Point]) -> None:
        if self._last_steps is None:
            stored = client.get_run(run_id).data._metric_objs
            self._last_steps = {metric.key: metric.step for metric in stored}
        last_steps = self._last_steps
        new: list[Point] = []
        for key, value, milliseconds, step in points:
            # A resumed run repeats steps exactly, so stored points are kept.
            if step > last_steps.get(key, -1):
                last_steps[key] = step
                new.append((key, value, milliseconds, step))
        try:
            _log_metrics(client, run_id, new)
        except BaseException:
            self._last_steps = None
            raise


def dataset_of(description: dict[str, Any]) -> dict[str, str]:
    """Data module's description of its data, as an MLflow dataset."""
    return {
        "name": str(description.get("name", "data")),
        "digest": str(description.get("digest", ""))[:MAX_DIGEST_LENGTH],
        "source_type": "local",
        "source": json.dumps({"uri": str(description.get("source", ""))}),
        "profile": json.dumps(description, default=str),
    }


def dataset_tag(description: dict[str, Any]) -> str:
    """Name of the data and the beginning of its digest."""
    dataset = dataset_of(description)
    return f"{dataset['name']} {dataset['digest'][:12]}"


def _known_run(store: Store, client: MlflowClient, run_id: str) -> str | None:
    """Id in the store of a run with a local id; None if it has not been created yet."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    name = f"tags.`{OFFLINE_TAG}`" if store.remote else "attributes.run_id"
    runs = client.search_runs(experiments, f"{name} = '{run_id}'", max_results=1)
    return runs[0].info.run_id if runs else None


@contextmanager
def _id_of_ours(store: Store, run_id: str) -> Iterator[None]:
    """Forces the id of a run created in a SQLite file, to match its folder; a server assigns its own id."""
    if store.remote:
        yield
        return
    from mlflow.store.tracking.dbmodels.models import SqlRun
    from sqlalchemy import event

    def rename(run: SqlRun, args: tuple[Any, ...], values: dict[str, Any]) -> None:
        values["artifact_uri"] = values["artifact_uri"].replace(values["run_uuid"], run_id)
        values["run_uuid"] = run_id

    event.listen(SqlRun, "init", rename)
    try:
        yield
    finally:
        event.remove(SqlRun, "init", rename)


def _log_metrics(client: MlflowClient, run_id: str, points: list[Point]) -> None:
    from mlflow.entities import Metric

    client.log_batch(run_id, metrics=[Metric(*point) for point in points], synchronous=True)


def _send_params(client: MlflowClient, run_id: str, params: dict[str, str]) -> None:
    """Sends new parameters. MLflow parameters are immutable, so changes in a resumed run are recorded in a tag."""
    from mlflow.entities import Param

    stored = client.get_run(run_id).data.params
    comparable = {key: value for key, value in params.items() if key in stored and key not in RUN_SPECIFIC}
    changed = [f"{key}: {stored[key]} -> {new}" for key, new in comparable.items() if stored[key] != new]
    new = [Param(key, value) for key, value in params.items() if key not in stored]
    client.log_batch(run_id, params=new, synchronous=True)
    if changed:
        _send_tags(client, run_id, {CHANGED_TAG: "; ".join(changed)})


def _start_again(client: MlflowClient, run_id: str) -> None:
    if FAILURE_TAG in client.get_run(run_id).data.tags:
        client.delete_tag(run_id, FAILURE_TAG)
    client.update_run(run_id, status="RUNNING")


def _send_tags(client: MlflowClient, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in _cut(tags).items()], synchronous=True)


def _send_dataset(client: MlflowClient, run_id: str, dataset: dict[str, str], context: str) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    client.log_inputs(run_id, [DatasetInput(Dataset(**dataset), [InputTag("mlflow.data.context", context)])])


@contextmanager
def answer_timeout(seconds: int) -> Iterator[None]:
    """Sets the request timeout in seconds, for file transfers and background requests that may take longer."""
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    before = os.environ[name]
    os.environ[name] = str(seconds)
    try:
        yield
    finally:
        os.environ[name] = before


def _cut(tags: dict[str, str]) -> dict[str, str]:
    return {key: value[:MAX_TAG_LENGTH] for key, value in tags.items()}
