"""Store of runs: a SQLite file next to the artifacts, or an MLflow server."""

from __future__ import annotations

import os
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from filelock import FileLock

from seqlab.files.atomic import why_not_written, writing
from seqlab.files.large_imports import uncollected
from seqlab.files.plain_tables import SQLITE, check_files, check_tables, check_tables_to_write
from seqlab.tracking.artifact_place import are_names, check_address, check_folder
from seqlab.tracking.aside import aside, prepare_mlflow

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.tracking import MlflowClient

    from seqlab.tracking.stored import StoredRun

DEFAULT_ROOT = "mlruns"
OFFLINE_TAG = "seqlab.offline_id"
"""Tag with the local id of a run from before its server assigned one."""

TEMPORARY = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "DEADLINE_EXCEEDED")
NOT_FOR_US = dict.fromkeys(
    ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED"),
    "renew MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
) | dict.fromkeys(
    ("BAD_REQUEST", "ENDPOINT_NOT_FOUND", "NOT_FOUND"),
    "check that MLFLOW_TRACKING_URI is the address of an MLflow server",
)
"""Advice for each error code of a server that rejects a request before processing it."""

MOST_SAID = 500  # characters of a server message


class UnreachableError(OSError):
    """The store does not answer now or rejects our requests, but may accept them later."""


class Store:
    """The store of runs.

    `MLFLOW_TRACKING_URI` names the store; the default is `<root>/mlflow.db`. Artifacts are stored next to a SQLite
    file, in `<experiment>/<run id>/artifacts`. A server stores artifacts itself, and `<root>/<run id>/artifacts`
    contains those on this machine.

    Args:
        root: folder of the default store, and of local files when a server is used; relative to the working folder.

    Attributes:
        uri: MLflow URI of the store, absolute.
        root: folder of the store or of local files, absolute.
        remote: whether the store is a server.

    Raises:
        ValueError: `MLFLOW_TRACKING_URI` names neither a SQLite file nor a server, or MLflow does not support the path.
    """

    def __init__(self, root: str | Path = DEFAULT_ROOT) -> None:
        here = Path(root).resolve() / "mlflow.db"
        named = os.environ.get("MLFLOW_TRACKING_URI")
        uri = named or f"{SQLITE}{here}"
        self.remote = uri.startswith(("http://", "https://"))
        self._database: Path | None = None
        if self.remote:
            self.uri, self.root = uri.rstrip("/"), Path(root).resolve()
        elif uri.startswith(SQLITE) and len(uri) > len(SQLITE):
            self._database = Path(uri.removeprefix(SQLITE)).resolve()
            self.uri, self.root = f"{SQLITE}{self._database}", self._database.parent
        else:
            raise ValueError(
                f"MLFLOW_TRACKING_URI is {uri!r}; accepted: sqlite:///PATH, http://HOST:PORT, https://HOST"
            )
        if self._database is not None:
            check_files(self._database, "the tracking store")
            if not named and here.is_symlink():  # a folder from someone else must not redirect writes
                raise ValueError(f"{here} is a link; if its target is your store, set MLFLOW_TRACKING_URI={self.uri}")
        if not self.remote and set("%?") & set(self.uri):
            raise ValueError(f"the tracking store cannot be {self.uri}: MLflow takes no path with % or ? in it")

    @contextmanager
    def calls(self, *, reads: bool = False) -> Iterator[MlflowClient]:
        """Context with MLflow's client, which translates its errors and isolates its random draws.

        Args:
            reads: read only; a SQLite file is not changed, see as_it_is.py.

        Raises:
            UnreachableError: the store does not answer now.
        """
        with aside():
            client = self._reader if reads and self._database is not None else self.client
            from google.protobuf.json_format import ParseError
            from mlflow.exceptions import MlflowException
            from requests import RequestException

            from seqlab.tracking.bounded_answers import begin_call

            begin_call()
            try:
                yield client
            except (MlflowException, RequestException, ParseError) as error:
                if isinstance(error, MlflowException) and error.error_code not in (*TEMPORARY, *NOT_FOR_US):
                    raise
                raise UnreachableError(self._unreachable(error)) from error

    def _unreachable(self, error: Exception) -> str:
        if self._database is not None and (reason := why_not_written(error, self._database)):
            return f"{reason} while writing {self._database}; what was there before is whole"
        said = str(error).partition("\n")[0][:MOST_SAID]
        code = getattr(error, "error_code", None) or _code_of_status(error)
        if code in NOT_FOR_US:
            return f"MLflow at {self.uri} rejects the request ({said}); {NOT_FOR_US[code]}"
        return f"MLflow at {self.uri} does not answer: {said}"

    @property
    def exists(self) -> bool:
        """True if the store exists; a server is assumed to exist."""
        return self._database is None or self._database.exists()

    def check_exists(self) -> None:
        """Raises ValueError if the store does not exist."""
        if not self.exists:
            raise ValueError(f"there are no runs yet: {self.uri} does not exist; seqlab fit creates the first")

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client; creates the store if it is missing. Use it through `calls`.

        Raises:
            ValueError: the store was written by another version of MLflow, or is not a store.
            OSError: the file cannot be read.
            CannotWriteError: the file cannot be created.
        """
        with self._opening():
            from mlflow.tracking import MlflowClient

            if self._database is not None:
                if not self._database.exists():
                    with writing(self._database):
                        _create_database(self._database)
                self._database.open("rb").close()  # fails at once; MLflow would retry for 100 s
                check_tables_to_write(self._database)
            return MlflowClient(self.uri)

    @cached_property
    def _reader(self) -> MlflowClient:
        """Read-only MLflow client of a SQLite file.

        Raises:
            ValueError: as `client`, or the file does not exist.
            OSError: the file cannot be read.
        """
        self.check_exists()
        with self._opening():
            from seqlab.tracking.as_it_is import reading_client

            assert self._database is not None
            return reading_client(self._database)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        with aside(), uncollected(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # MLflow uses deprecated functions of newer libraries
            prepare_mlflow()
            from mlflow.exceptions import MlflowException
            from sqlalchemy.exc import DatabaseError

            try:
                yield
            except (MlflowException, DatabaseError, sqlite3.Error, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise ValueError(f"the tracking store {self.uri} cannot be opened: {reason}") from error

    def experiment_id(self, name: str) -> str:
        """Id of the experiment with this name; created if missing.

        Raises:
            ValueError: the experiment was deleted but not yet purged, or is broken.
            UnreachableError: the store does not answer now.
        """
        with self.calls() as client:
            from mlflow.exceptions import MlflowException

            location = None if self.remote else str(self.root / _folder_name(name))
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                try:
                    return str(client.create_experiment(name, location))
                except MlflowException as error:
                    if error.error_code != "RESOURCE_ALREADY_EXISTS":
                        raise
                    experiment = client.get_experiment_by_name(name)  # another process created it first
                    if experiment is None:
                        raise ValueError(f"experiment {name!r} of {self.uri} is broken; name another one") from error
        if experiment.lifecycle_stage != "active":
            raise ValueError(
                f"experiment {name!r} is deleted; restore it with `mlflow experiments restore "
                f"--experiment-id {experiment.experiment_id}` or name another one"
            )
        return str(experiment.experiment_id)

    def folder(self, experiment: str) -> Path | None:
        """Parent folder of an experiment's new runs, found without importing MLflow, which takes seconds; None where
        MLflow is required to decide.

        Raises:
            ValueError: the folder is invalid or outside the store.
        """
        if self._database is None:
            return None
        folder = self.root / _folder_name(experiment)
        whose = f"of {experiment!r}"
        if not self._database.exists():
            return check_folder(folder, self.root, whose)
        query = "SELECT artifact_location, lifecycle_stage FROM experiments WHERE name = ?"
        try:
            with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as database:
                check_tables(database)
                found = database.execute(query, (experiment,)).fetchone()
        except sqlite3.Error:
            return None
        if found is None:
            return check_folder(folder, self.root, whose)
        if not isinstance(found[0], str):
            raise ValueError(
                f"experiment {experiment!r} of {self.uri} has the invalid folder {found[0]!r}; name another one"
            )
        location, stage = Path(found[0]), found[1]
        beside = self.root / location.name
        if not location.is_absolute() or stage != "active":
            return None
        there = location.exists() and not beside.exists()
        return check_folder(location if there else beside, self.root, whose)

    def artifacts(self, run: Run | StoredRun) -> Path:
        """Folder of a run's artifacts; with a server, the folder of those on this machine.

        Raises:
            ValueError: the server has an invalid id for the run, or the folder is outside the store.
        """
        if self.remote:
            for run_id in (run.info.run_id, run.data.tags.get(OFFLINE_TAG, "none")):
                if not re.fullmatch(r"\w+", run_id):
                    raise ValueError(f"MLflow at {self.uri} has a run with the invalid id {run_id!r}")
            begun_offline = self.root / run.data.tags.get(OFFLINE_TAG, "") / "artifacts"
            return begun_offline if begun_offline.exists() else self.root / run.info.run_id / "artifacts"
        uri = run.info.artifact_uri or ""
        stored = Path(url2pathname(urlsplit(uri).path if uri.startswith("file:") else uri))
        if len(stored.parts) < 3 or not are_names(stored.parts) or ("://" in uri and not uri.startswith("file://")):
            raise ValueError(
                f"run {run.info.run_id} has its files in {uri[:100]!r}, which is not a folder of its store {self.root}"
            )
        beside = self.root.joinpath(*stored.parts[-3:])
        # MLflow stores absolute paths, which are wrong after the store has been moved or copied.
        new = beside.parents[1].exists() and not stored.exists()
        folder = stored if stored.parents[1].exists() and not beside.exists() and not new else beside
        return check_folder(folder, self.root, run.info.run_id)

    def files(self, run: Run | StoredRun) -> ArtifactRepository:
        """MLflow's artifact repository of a run. MLflow's client would request the address again from the server and
        use it unchecked.

        Raises:
            ValueError: the files are neither in the store nor behind its server, and the user has not allowed that.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if not self.remote:
            return get_artifact_repository(self.artifacts(run).as_uri())
        address = run.info.artifact_uri or ""
        check_address(address, self.uri, run.info.run_id)
        return get_artifact_repository(address, tracking_uri=self.uri)


def _code_of_status(error: Exception) -> str | None:
    """MLflow's error code for the HTTP status of a file request, which has no error code itself."""
    from mlflow.exceptions import HTTP_STATUS_TO_ERROR_CODE

    response = getattr(error, "response", None)
    return None if response is None else HTTP_STATUS_TO_ERROR_CODE.get(response.status_code)


def _create_database(path: Path) -> None:
    """Creates an empty store atomically, because MLflow's migrations fail when two processes run them at once."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.exists():
            return
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            SqlAlchemyStore(f"{SQLITE}{partial}", str(path.parent)).engine.dispose()  # type: ignore[no-untyped-call]
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _folder_name(experiment: str) -> str:
    """Folder name of an experiment, at most 200 characters; file systems allow 255."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", experiment).strip("-")[:200] or "experiment"
