"""Last words of a fit of several processes when one of them dies: the first one's error, once."""

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
"""The environment's name for the file that the ranks of one machine share: whoever dies first creates it."""
SECONDS = 1.0
"""Seconds that the first rank waits for the words of one to which it has lost the connection."""
LAST_WRITES = 60.0
"""Seconds that it has for its last writes."""


@contextmanager
def last_words() -> Iterator[None]:
    """Names the file in the environment around a fit, so that the processes it starts know it."""
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
    """Words of the rank that died first, empty where the file is gone with it: errors of the others are no news."""
    path = Path(os.environ.get(FILE, os.devnull))
    if path.is_file():
        return path.read_text(encoding="utf-8") or None  # it is still being said
    return None if path.parent.exists() else ""


class LastWords(Callback):
    """Prints `rank 1 died: <its error>` where several processes fit, for the first that dies."""

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
    """Prints what a rank has to say, if it is the first."""
    path = os.environ.get(FILE)
    with suppress(FileExistsError, FileNotFoundError):
        if path is not None:
            with Path(path).open("x", encoding="utf-8") as file:
                print(f"seqlab: {words}", file=sys.stderr, flush=True)
                file.write(words)  # who reads them may end this process


def _observe(processes: list[subprocess.Popen[bytes]], first: int) -> None:
    """Speaks for the one of these ranks, from `first` on, that ends without a word, and ends the others.

    Lightning's observer does so too, but within 5 seconds, and it ends this process as well, which may have yet to
    store how far the fit came: `processes` is emptied before it looks. If this process still waits for the dead, it
    ends at last.
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
