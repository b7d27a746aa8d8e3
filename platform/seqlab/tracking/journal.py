"""What a run writes, in order: to its store, or to a file while the store does not answer, and then to the store."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from pathlib import Path

from filelock import FileLock

from seqlab.tracking.store import OFFLINE_TAG, Store, UnreachableError
from seqlab.tracking.writes import Sender, Write

FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0
"""Seconds of training between attempts to reach a store that did not answer: each wait is twice the last."""

log = logging.getLogger("seqlab")


class Journal:
    """Writes of one run. After `create` nothing here raises or waits long: tracking must not stop a training.

    Args:
        store: where the run is.
        run_id: the run; None if it is to be created.

    Attributes:
        run_id: the run's id, or one of this machine's if a server did not answer when the run was created.
    """

    def __init__(self, store: Store, run_id: str | None = None) -> None:
        self.store = store
        self.run_id = run_id or uuid.uuid4().hex
        self._sender = Sender(store, self.run_id)
        self._wait, self._retry_at = FIRST_WAIT, 0.0

    @property
    def pending(self) -> Path:
        """The file of what has not been sent."""
        return _folder(self.store) / f"{self.run_id}.jsonl"

    def create(self, experiment: str, name: str | None, tags: dict[str, str]) -> None:
        """Creates the run, or notes that it is to be created if a server does not answer.

        Raises:
            ValueError: the store cannot be used.
            OSError: the store is a file that cannot be written.
        """
        tags = {**tags, OFFLINE_TAG: self.run_id} if self.store.remote else tags
        write = {"op": "create", "experiment": experiment, "name": name, "tags": tags, "time": now()}
        _ = self.store.client
        from mlflow.exceptions import MlflowException

        try:
            self._sender.send(write)
        except UnreachableError as error:
            if not self.store.remote:
                raise
            self._keep(write, error)
        except MlflowException as error:
            raise ValueError(f"MLflow refuses the run: {error.message}") from error
        else:
            assert self._sender.stored_id is not None
            self.run_id = self._sender.stored_id

    def write(self, write: Write) -> None:
        """Sends a write, after those that were kept, or keeps it too."""
        try:
            if self.pending.exists() and (time.monotonic() < self._retry_at or not self.replay()):
                self._keep(write)
            else:
                self._sender.send(write)
        except UnreachableError as error:
            self._keep(write, error)
        except Exception as error:
            self._warn_refused(write, error)

    def replay(self) -> bool:
        """Sends what was kept; False if the store still does not answer."""
        if not self.pending.exists():
            return True
        with _lock(self.store):
            writes = _read(self.pending)
            while writes:
                try:
                    self._sender.send(writes[0])
                except UnreachableError:
                    self._postpone()
                    break
                except Exception as error:
                    self._warn_refused(writes[0], error)
                    if writes[0]["op"] == "create":
                        break
                writes.pop(0)
            _rewrite(self.pending, writes)
        if not writes:
            self._wait, self._retry_at = FIRST_WAIT, 0.0
        return not writes

    def _keep(self, write: Write, error: UnreachableError | None = None) -> None:
        if error is not None:
            if self._retry_at == 0:
                log.warning("%s; what it misses is kept in %s and sent when it is back", error, self.pending)
            self._postpone()
        try:
            with _lock(self.store), self.pending.open("a", encoding="utf-8") as file:
                file.write(json.dumps(write) + "\n")
        except OSError as failure:
            log.warning("%s of run %s is lost: %s", write["op"], self.run_id, failure)

    def _postpone(self) -> None:
        self._retry_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _warn_refused(self, write: Write, error: Exception) -> None:
        log.warning("MLflow refuses %s of run %s: %s", write["op"], self.run_id, error)


def replay_all(store: Store) -> bool:
    """Sends what runs of this folder kept while a server did not answer; False if it still does not."""
    return all(Journal(store, file.stem).replay() for file in sorted(_folder(store).glob("*.jsonl")))


def now() -> int:
    """Milliseconds since 1970, as MLflow counts."""
    return int(time.time() * 1000)


def _folder(store: Store) -> Path:
    return store.root / ".pending"


def _lock(store: Store) -> FileLock:
    _folder(store).mkdir(parents=True, exist_ok=True)
    return FileLock(_folder(store) / ".lock")


def _read(file: Path) -> list[Write]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may have been cut off


def _rewrite(file: Path, writes: list[Write]) -> None:
    if not writes:
        file.unlink(missing_ok=True)
        return
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(write) + "\n" for write in writes), encoding="utf-8")
    os.replace(partial, file)
