"""Ordered writes of a run, sent to its store, or kept in a file while the store does not answer and sent later."""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from seqlab.files.atomic import write_whole
from seqlab.files.regular_file import check_regular
from seqlab.tracking.provenance import is_gone
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import OFFLINE_TAG, Store, UnreachableError
from seqlab.tracking.writes import Sender, Write

FIRST_WAIT, LONGEST_WAIT = 30.0, 600.0
"""First and maximum seconds between attempts to reach a store that does not answer; each wait is twice the last."""

REFUSED = "INVALID_PARAMETER_VALUE"
"""MLflow's error code for a write that it will never accept because of its content."""

log = logging.getLogger("seqlab")
_told: set[Path] = set()
"""Roots of the stores that `tell_kept` has reported on."""


class Journal:
    """Writes of one run. After `create` and `begin` no method raises, because tracking must not stop training.

    Args:
        store: store of the run.
        run_id: id of an existing run; None = the run is created later.

    Attributes:
        run_id: the run's id, or a local id if the server did not answer when the run was created.
        retry_at: time of the next attempt, by `time.monotonic`; 0 while the store answers, infinity before `begin`.
        sending: op that is being sent; empty = none.
    """

    def __init__(self, store: Store, run_id: str | None = None) -> None:
        self.store = store
        self.run_id = run_id or uuid.uuid4().hex
        self._sender = Sender(store, self.run_id)
        self._creation: Write = {}
        self._wait, self.retry_at = FIRST_WAIT, 0.0
        self.sending = ""
        self._losing = False

    @property
    def pending(self) -> Path:
        """File of unsent writes."""
        return unsent(self.store) / f"{self.run_id}.jsonl"

    @property
    def _lock(self) -> Path:
        """Lock of the process that is sending the file."""
        return self.pending.with_suffix(".lock")

    def create(self, experiment: str, name: str | None, tags: dict[str, str], *, later: bool = False) -> None:
        """Creates the run, or records that it must be created if a server does not answer.

        Args:
            later: keep the creation and the following writes until `begin`, because MLflow takes seconds to import. If
                they cannot be kept, the run is created at once.

        Raises:
            ValueError: the store cannot be used.
            OSError: the store is a file that cannot be written.
        """
        tags = {**tags, OFFLINE_TAG: self.run_id} if self.store.remote else tags
        self._creation = {"op": "create", "experiment": experiment, "name": name, "tags": tags, "time": now()}
        if later and self.keep(self._creation):
            self.retry_at = math.inf
        else:
            self._create()

    def begin(self) -> bool:
        """Creates a postponed run and sends the writes kept since; False if no run was postponed.

        Raises:
            ValueError, OSError: as `create`. All writes are then kept for the next command.
        """
        if self.retry_at < math.inf:
            return False
        self.retry_at = time.monotonic() + FIRST_WAIT
        with FileLock(self._lock):  # another process may be sending it
            self._create()
            self._replay()
        return True

    def _create(self) -> None:
        _ = self.store.client
        from mlflow.exceptions import MlflowException

        try:
            self._sender.send(self._creation)
        except UnreachableError as error:
            if not self.store.remote:
                raise
            self._postpone(error)
            self.keep(self._creation)
        except MlflowException as error:
            raise ValueError(f"MLflow refuses the run: {error.message}") from error
        else:
            assert self._sender.stored_id is not None
            self.run_id = self._sender.stored_id

    def write(self, write: Write) -> None:
        """Sends the kept writes and then this one, or keeps this one too."""
        if self.pending.exists() and (time.monotonic() < self.retry_at or not self.replay()):
            self.keep(write)
            return
        try:
            self._deliver(write)
        except UnreachableError as error:
            self._postpone(error)
            self.keep(write)

    def keep(self, write: Write, file: Path | None = None) -> bool:
        """Appends a write to a file; None = the file that `replay` sends. False if it cannot be written."""
        try:
            _append(self.store, file or self.pending, write)
            self._losing = False
        except OSError as failure:
            if not self._losing:
                log.warning("%s of run %s is lost: %s", write["op"], self.run_id, failure)
            self._losing = True
        return not self._losing

    def replay(self, wait: float = 0.0) -> bool:
        """Sends the kept writes. False if the store still does not answer, or if another process is still sending them
        after `wait` seconds."""
        if not self.pending.exists():
            return True
        try:
            with FileLock(self._lock, timeout=wait):
                return self._replay()
        except Timeout:
            return False

    def _replay(self) -> bool:
        # The lock is not held while sending; writes kept in the meantime are appended behind the sent ones.
        with _lock(self.store):
            writes = self._kept()
        sent = 0
        for write in writes:
            try:
                self._deliver(write)
            except UnreachableError as error:
                self._postpone(error)
                break
            sent += 1
        with _lock(self.store):
            if left := self._kept()[sent:]:
                write_whole(self.pending, "".join(map(_line, left)))
            else:
                self.pending.unlink(missing_ok=True)
        if sent == len(writes):
            self._wait, self.retry_at = FIRST_WAIT, 0.0
            with suppress(OSError):  # Windows does not remove open files
                self._lock.unlink()
        return sent == len(writes)

    def _kept(self) -> list[Write]:
        """Kept writes. Lines that are not writes are reported and moved to another file."""
        writes, others = _read(self.pending)
        if others:
            aside = self.pending.with_suffix(".refused")
            for number, reason in others:
                log.warning(
                    "%s, line %d is not a write of a run and was set aside in %s: %s",
                    self.pending,
                    number,
                    aside,
                    reason,
                )
            lines = self.pending.read_bytes().splitlines(keepends=True)
            with aside.open("ab") as file:
                file.writelines(lines[number - 1] for number, _ in others)
            write_whole(self.pending, "".join(map(_line, writes)))
        return writes

    def _deliver(self, write: Write) -> None:
        """Sends a write. Parts that the store refuses for their content are moved to another file.

        Raises:
            UnreachableError: the store does not accept the write now.
        """
        from mlflow.exceptions import MlflowException

        self.sending = write["op"]
        try:
            self._sender.send(write)
        except UnreachableError:
            raise
        except Exception as error:
            if write["op"] == "create" or (isinstance(error, MlflowException) and error.error_code != REFUSED):
                raise UnreachableError(f"MLflow at {self.store.uri} refuses {write['op']}: {error}") from error
            if parts := _halves(write):
                for part in parts:
                    self._deliver(part)
            else:
                aside = self.pending.with_suffix(".refused")
                log.warning(
                    "MLflow refuses %s of run %s, which was set aside in %s: %s", write["op"], self.run_id, aside, error
                )
                self.keep(write, aside)
        finally:
            self.sending = ""

    def _postpone(self, error: UnreachableError) -> None:
        if self.retry_at in (0, math.inf) and self._wait == FIRST_WAIT:
            log.warning("%s; the writes are kept in %s and sent when it is back", error, self.pending)
        self.retry_at = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)


def replay_all(store: Store, wait: float = 0.0) -> bool:
    """Sends the unsent writes of this machine's runs; False if some could not be sent."""
    return all([Journal(store, file.stem).replay(wait) for file in sorted(unsent(store).glob("*.jsonl"))])


def tell_kept(store: Store) -> None:
    """Warns once about writes missing from a store. A journal found inside the store is ignored, because it is not
    trusted. Unsent writes of this machine wait for a command that writes."""
    if store.root in _told:
        return
    _told.add(store.root)
    ours = unsent(store)
    if any((store.root / ".pending").glob("*.jsonl")):
        log.warning(
            "%s is left alone, since it came with the store: the unsent writes of this machine are in %s",
            store.root / ".pending",
            ours,
        )
    if left := sum(map(_is_left, ours.glob("*.jsonl"))):
        runs = "1 run" if left == 1 else f"{left} runs"
        log.warning(
            "%s lacks the writes that %s kept in %s; seqlab fit, resume or test sends them", store.uri, runs, ours
        )


def now() -> int:
    """Current time in milliseconds since 1970, as in MLflow."""
    return int(time.time() * 1000)


def _halves(write: Write) -> list[Write]:
    """Splits a write of several points, params or tags in two; empty if it cannot be split."""
    name = "points" if write["op"] == "scores" else write["op"]
    parts = write.get(name)
    if not isinstance(parts, list | dict) or len(parts) < 2 or name == "dataset":
        return []
    entries, middle = list(parts.items()) if isinstance(parts, dict) else parts, len(parts) // 2
    halves = (entries[:middle], entries[middle:])
    return [{**write, name: dict(half) if isinstance(parts, dict) else half} for half in halves]


def _lock(store: Store) -> FileLock:
    unsent(store).mkdir(parents=True, exist_ok=True, mode=0o700)
    return FileLock(unsent(store) / ".lock")


def _append(store: Store, file: Path, write: Write) -> None:
    with _lock(store), file.open("a", encoding="utf-8") as lines:
        lines.write(_line(write))


def _line(write: Write) -> str:
    return json.dumps(write) + "\n"


def _is_left(file: Path) -> bool:
    """True if the process that kept these writes has ended, or is not named in the file."""
    if not file.is_file():  # reading a pipe would block
        return True
    try:
        with file.open(encoding="utf-8") as lines:
            first = json.loads(lines.readline())
        return first["op"] != "create" or is_gone(first["tags"])
    except OSError:
        return False
    except (ValueError, TypeError, KeyError, RecursionError):
        return True


def _read(file: Path) -> tuple[list[Write], list[tuple[int, str]]]:
    """Writes in a file, and the line numbers of invalid lines with the reasons.

    Raises:
        ValueError: the path is not a regular file.
    """
    if not file.exists():
        return [], []
    check_regular(file, "the journal")
    writes, others = [], []
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break  # the last line may be truncated
        try:
            write = json.loads(line)
            if not isinstance(write, dict) or not isinstance(write.get("op"), str):
                raise ValueError("it is not an object with an op")
            writes.append(write)
        except (ValueError, RecursionError) as error:
            others.append((number, str(error)))
    return writes, others
