"""Error report of a multi-process fit: when ranks die, only the first one's error is printed, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import lightning as L
from lightning.pytorch.callbacks import Callback

from seqlab.config.errors import sentence

FILE = "SEQLAB_LAST_WORDS"
"""Environment variable with the path of the file shared by the ranks of a machine; the first to die creates it."""
SECONDS = 1.0
"""Seconds that rank 0 waits for the error of a rank to which it has lost the connection."""
LAST_WRITES = 60.0
"""Seconds that this process has for its last writes."""


@contextmanager
def crash_report() -> Iterator[None]:
    """Sets the environment variable during a fit, so that child processes find the shared file."""
    if FILE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FILE] = str(Path(folder) / "last words")
        try:
            yield
        finally:
            del os.environ[FILE]


def spoken() -> str | None:
    """Error of the rank that died first; None if no rank has; empty if the shared folder is already gone."""
    path = Path(os.environ.get(FILE, os.devnull))
    if path.is_file():
        return path.read_text(encoding="utf-8") or None  # still being written
    return None if path.parent.exists() else ""


class CrashReport(Callback):
    """Prints `rank 1 died: <its error>` for the first rank of a multi-process fit that dies."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if processes := getattr(trainer.strategy.launcher, "procs", []):
            Thread(target=_observe, args=(processes, trainer.global_rank + 1), daemon=True).start()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if trainer.world_size == 1 or not isinstance(exception, Exception):
            return
        until = time.monotonic() + SECONDS
        while trainer.global_rank == 0 and spoken() is None and time.monotonic() < until:
            time.sleep(0.05)
        say(f"rank {trainer.global_rank} died: {type(exception).__name__}: {sentence(exception)}")


def say(words: str) -> None:
    """Prints a rank's error if no other rank has printed one."""
    path = os.environ.get(FILE)
    with suppress(FileExistsError, FileNotFoundError):
        if path is not None:
            with Path(path).open("x", encoding="utf-8") as file:
                print(f"seqlab: {words}", file=sys.stderr, flush=True)
                file.write(words)  # a reader of the file may kill this process


def _observe(processes: list[subprocess.Popen[bytes]], first: int) -> None:
    """Watches the child processes, whose ranks count from `first`. When one fails, reports it and kills the others.

    Lightning's observer does the same every 5 seconds, but also kills this process, which may still have to store the
    progress of the fit. Emptying `processes` prevents that. This process is killed after `LAST_WRITES` seconds, in case
    it still waits for a dead rank.
    """
    while not (failed := [(first + k, process) for k, process in enumerate(processes) if process.poll()]):
        if all(process.returncode == 0 for process in processes):
            return
        time.sleep(0.05)
    rank, process = failed[0]
    code = process.returncode
    say(f"rank {rank} died: " + (f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"))
    others = [*processes]
    processes.clear()
    for process in others:
        process.kill()
    time.sleep(LAST_WRITES)
    os.kill(os.getpid(), signal.SIGKILL)
