"""What a fit of several processes says when one of them dies: the first one's error, once."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback

from seqlab.training.errors import sentence

FILE = "SEQLAB_LAST_WORDS"
"""The environment's name for the file that the ranks of one machine share: whoever dies first creates it."""
SECONDS = 1.0
"""How long the first rank waits for the end of one that it has lost the connection to."""


@contextmanager
def last_words() -> Iterator[None]:
    """Around a fit: the processes that it starts take over the environment, and know the file."""
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
    """What the rank that died first has said, empty where the file is gone with it: what the others meet is no news."""
    path = Path(os.environ.get(FILE, os.devnull))
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return None if path.parent.exists() else ""


class LastWords(Callback):
    """Prints `rank 1 died: <its error>` where several processes fit, for the first that dies."""

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if trainer.world_size == 1 or not isinstance(exception, Exception) or FILE not in os.environ:
            return
        words = f"rank {trainer.global_rank} died: {type(exception).__name__}: {sentence(exception)}"
        words = _killed_rank(trainer) or words
        with suppress(FileExistsError, FileNotFoundError), Path(os.environ[FILE]).open("x", encoding="utf-8") as file:
            file.write(words)
            print(f"seqlab: {words}", file=sys.stderr, flush=True)


def _killed_rank(trainer: L.Trainer) -> str | None:
    """Of the ranks that this process started, the one that a signal ended: it had no time for words."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and spoken() is None:
        for rank, process in enumerate(getattr(trainer.strategy.launcher, "procs", []), start=1):
            if (process.poll() or 0) < 0:
                return f"rank {rank} died: killed by {signal.Signals(-process.returncode).name}"
        time.sleep(0.05)
    return None
