"""The logger of a fit: one MLflow run, its metrics in batches and its checkpoints among its artifacts."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from seqlab.files.atomic import write_whole, writing
from seqlab.files.plain_values import check_text
from seqlab.tracking.artifact_place import check_folder
from seqlab.tracking.job import JOB_TAG, job_of
from seqlab.tracking.journal import Journal, now
from seqlab.tracking.outbox import Outbox
from seqlab.tracking.params import accepted, flatten
from seqlab.tracking.provenance import description, given_tags, process_tags
from seqlab.tracking.runs import settle
from seqlab.tracking.store import DEFAULT_ROOT, Store, UnreachableError
from seqlab.tracking.writes import DATASET_TAG, Write, dataset_of, dataset_tag

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

MOST_CHARACTERS = 500
"""MLflow's limit for the name of an experiment."""
FEWEST_STEPS, MOST_STEPS, SECONDS = 10, 50, 5.0
"""Points are sent every 50 steps, or every 10 where those take over 5 s: a call costs 10 ms whatever it holds."""


def check_experiment(name: str) -> None:
    """Raises ValueError where an experiment's name is empty, longer than MLflow takes, or no text."""
    check_text(name, "experiment")
    if not 0 < len(name) <= MOST_CHARACTERS:
        reason = f"the name that runs are grouped by has 1 to {MOST_CHARACTERS}"
        raise ValueError(f"experiment has {len(name)} characters; {reason}")


class RunLogger(Logger):
    """Logs a fit as one run of the tracking store (`seqlab.tracking.store`).

    The run is there, on rank 0 only, when it is first needed. MLflow, which takes seconds to import, creates it in
    `begin` or at the end; until then its writes are kept, but with a server, which gives it its id. A server that does
    not answer, or takes its time, neither stops nor delays the fit: what it misses is sent later. What Lightning writes
    to a logger's folder becomes an artifact of the run; with a server it stays on this machine, and checkpoints are
    uploaded when the fit ends.

    Args:
        experiment: name of the experiment, created if it is missing.
        name: name of the run; None lets MLflow make one up.
        root: folder of the default store, and of local files when a server is used.
        run_id: a run to continue; what is already stored of it is not logged again.

    Attributes:
        status: how the run ends, FINISHED unless something else is set.
    """

    def __init__(
        self,
        experiment: str = "seqlab",
        *,
        name: str | None = None,
        root: str = DEFAULT_ROOT,
        run_id: str | None = None,
    ) -> None:
        super().__init__()
        check_experiment(experiment)
        check_text(name or "", "run_name")
        self.store = Store(root)
        self.status = "FINISHED"
        self._experiment, self._name, self._resumed_id = experiment, name, run_id
        self._journal: Journal | None = None
        self._outbox: Outbox | None = None
        self._artifacts = Path()
        self._points: list[tuple[str, float, int, int]] = []
        self._sent_step, self._sent_at, self._send_next = 0, time.monotonic(), False
        self._uploaded: dict[Path, float] = {}
        self._tags: dict[str, str] = {}

    @property
    @rank_zero_experiment
    def experiment(self) -> MlflowClient:
        """MLflow's client, made when something of it is asked for: Lightning looks at it before the first step."""
        return cast("MlflowClient", _Client(self))

    @property
    @rank_zero_only
    def run_id(self) -> str:
        """The run's id; None on other ranks than 0.

        Raises:
            ValueError: the run to continue is not in the store, or the store cannot be used.
        """
        return self._open().run_id

    @property
    def continued(self) -> bool:
        """True if the run existed before."""
        return self._resumed_id is not None

    @property
    def run_name(self) -> str:
        """The run's name; where a server has not given it one yet, the beginning of its id."""
        journal = self._open()
        if self._name is None and not journal.pending.exists():
            self._look_up(journal.run_id)
        return self._name or journal.run_id[:8]

    @property
    def artifacts(self) -> Path | None:
        """The folder of the run's artifacts on this machine; None on other ranks than 0."""
        return None if self.run_id is None else self._artifacts

    @property
    def checkpoint_dir(self) -> Path | None:
        """Folder of the checkpoints; None on other ranks than 0."""
        return None if self.artifacts is None else self.artifacts / "checkpoints"

    @property
    def save_dir(self) -> str | None:
        """The artifacts' folder: with an empty name and version, all that Lightning writes goes there."""
        return None if self.artifacts is None else str(self.artifacts)

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def begin(self) -> None:
        """Creates the run, if that was put off.

        Raises:
            ValueError: the store cannot be used.
            OSError: it is a file that cannot be written. What is written is kept then, and sent by the next command.
        """
        if self._open().begin():
            settle(self.store)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Takes the values of a step; they are sent in batches."""
        step, milliseconds = step or 0, now()
        self._points += [(accepted(key), float(v), milliseconds, step) for key, v in metrics.items()]
        steps, seconds = step - self._sent_step, time.monotonic() - self._sent_at
        if steps >= MOST_STEPS or (steps >= FEWEST_STEPS and seconds >= SECONDS) or self._send_next:
            self.flush()

    @rank_zero_only
    def flush(self) -> None:
        """Sends the points that have not been sent."""
        if self._points:
            points, self._points = self._points, []
            self._sent_step, self._sent_at, self._send_next = points[-1][-1], time.monotonic(), False
            try:
                self._write({"op": "points", "points": points})
            except BaseException:  # Ctrl-C: the end of the fit sends them
                self._points = points + self._points
                raise

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Stores nested values as flat parameters; of a run that is continued, changed ones become a tag."""
        params = vars(params) if isinstance(params, Namespace) else params
        if params:
            self._write({"op": "params", "params": flatten(params)})

    @rank_zero_only
    def log_tags(self, tags: dict[str, str]) -> None:
        """Stores or replaces tags."""
        new = {key: value for key, value in tags.items() if self._tags.get(key) != value}
        if new:
            self._tags |= new
            self._write({"op": "tags", "tags": new})

    @rank_zero_only
    def log_text(self, text: str, name: str) -> None:
        """Stores an artifact.

        Raises:
            CannotWriteError: its file cannot be written.
        """
        self._open()
        path = self._artifacts / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
        if self.store.remote:
            self._write({"op": "upload", "source": str(path), "folder": ""})

    @rank_zero_only
    def log_dataset(self, description: dict[str, Any]) -> None:
        """Stores a datamodule's description of its data, as an MLflow dataset."""
        self._write({"op": "dataset", "dataset": dataset_of(description)})
        self.log_tags({DATASET_TAG: dataset_tag(description)})

    @rank_zero_only
    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        """Notes the best and the last checkpoint in `checkpoint_dir`, and sends the next points at once.

        Lightning logs the checkpoint's own step after it: a run resumed from there would not log that step again.
        """
        self._send_next = True
        if self._relative(str(checkpoint_callback.dirpath)) != "checkpoints":  # another one's
            return
        paths = {"best": checkpoint_callback.best_model_path, "last": checkpoint_callback.last_model_path}
        self.log_tags({f"checkpoint.{which}": self._relative(path) for which, path in paths.items() if path})

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Sends what is left and ends the run: as `self.status`, or FAILED if Lightning says so."""
        if self._journal is None and not self._points:
            return
        self.flush()
        journal = self._open()
        if self.store.remote:
            self._upload_checkpoints()
        if status != "success" and self.status == "FINISHED":
            self.status = "FAILED"
        self._write({"op": "status", "status": self.status, "time": now()})
        if self._outbox is None:
            journal.replay()
        else:
            self._outbox.flush()

    def _write(self, write: Write) -> None:
        journal = self._open()
        if self._outbox is None:
            journal.write(write)
        else:
            self._outbox.write(write)

    def _open(self) -> Journal:
        if self._journal is None:
            folder = self.store.folder(self._experiment) if self._resumed_id is None else None
            if folder is None:
                settle(self.store)
            journal = Journal(self.store, self._resumed_id)
            if self._resumed_id is None:
                job = job_of(self._name)
                tags = process_tags() | description() | given_tags() | ({JOB_TAG: job} if job else {})
                journal.create(self._experiment, self._name, tags, later=folder is not None)
            self._artifacts = (folder or self.store.root) / journal.run_id / "artifacts"
            if not journal.pending.exists():
                self._look_up(journal.run_id)
            if self._resumed_id is not None:
                # In this order: a run that is RUNNING in a process that is gone would be marked KILLED.
                journal.write({"op": "tags", "tags": process_tags()})
                journal.write({"op": "status", "status": "RUNNING", "time": None})
            self._journal, self._outbox = journal, Outbox(journal) if self.store.remote else None
        return self._journal

    def _look_up(self, run_id: str) -> None:
        """Takes the run's name and folder from the store, if it answers."""
        try:
            with self.store.calls() as client:
                from mlflow.exceptions import MlflowException

                run = client.get_run(run_id)
        except UnreachableError:
            return
        except MlflowException as error:
            raise ValueError(f"run {run_id} cannot be continued: {error.message}") from error
        self._name, self._artifacts = run.info.run_name, self.store.artifacts(run)
        for path in self._artifacts.rglob("*") if self.continued else ():
            if path.is_symlink():
                check_folder(path, self.store.root, run_id)

    def _upload_checkpoints(self) -> None:
        folders = [self._artifacts / "checkpoints", *(self._artifacts / "callbacks").rglob("")]
        for path in (path for end in (".shards-*", "") for one in folders for path in sorted(one.glob(f"*.ckpt{end}"))):
            changed = path.stat().st_mtime
            if self._uploaded.get(path) != changed:
                self._uploaded[path] = changed
                folder = path.parent.relative_to(self._artifacts).as_posix()
                self._write({"op": "upload", "source": str(path), "folder": folder})

    def _relative(self, path: str) -> str:
        absolute = Path(path).resolve()
        inside = absolute.is_relative_to(self._artifacts.resolve())
        return str(absolute.relative_to(self._artifacts.resolve()) if inside else absolute)


class _Client:
    """MLflow's client of a run, which exists as soon as anything of this is asked for."""

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        self._logger.begin()
        return getattr(self._logger.store.client, name)
