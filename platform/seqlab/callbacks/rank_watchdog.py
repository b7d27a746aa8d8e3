"""Heartbeats of a fit's ranks: the position of each, and the missing ranks when one has waited too long."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed import distributed_c10d
from torch.optim import Optimizer

from seqlab.callbacks.crash_report import say
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.files.atomic import CannotWriteError, write_atomically

TORCHS = 1800.0
"""Default timeout of torch's collectives, in seconds."""
LONGEST_BEAT = 5.0
"""Maximum seconds between a rank's notes; a tenth of the timeout if that is less."""
STALE = 4
"""Beats without a note after which a rank is considered stopped."""
TIMED_OUT = re.compile(r"timed ?out", re.IGNORECASE)
"""Pattern of timeout errors of gloo and of process group stores. NCCL's watchdog kills the process; notes remain."""


class Note(NamedTuple):
    """Heartbeat of a rank.

    Attributes:
        passed: number of places passed so far; all ranks pass the same places.
        place: current place, such as the forward pass of a step.
        line: innermost Python line of the main thread.
        at: time of writing in seconds, by the file system's clock.
    """

    passed: int
    place: str
    line: str
    at: float


class RankWatchdog(Callback):
    """In a multi-process fit, writes each rank's position every few seconds from a background thread. The note is
    `ranks/rank-N.txt` in the run's artifacts, with the stacks of all threads, the main thread first. A rank that times
    out waiting for another, in training or in saving a checkpoint, reports the missing ranks with their positions and
    ends. A successful fit removes the notes.

    Args:
        timeout: seconds that a rank waits for another during training; None = the strategy's timeout.

    Raises:
        ValueError: the timeout is not above 0.
    """

    def __init__(self, timeout: float | None = None) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"--timeout must be above 0 seconds, got {timeout:g}")
        self.timeout, self._waits = timeout, timeout or TORCHS
        self._folder: Path | None = None
        self._rank = self._passed = 0
        self._place = "the beginning"
        self._beat = LONGEST_BEAT

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        artifacts: Path | None = getattr(trainer.logger, "artifacts", None)
        folder = None
        if trainer.is_global_zero:
            folder = Path(tempfile.mkdtemp()) if artifacts is None else artifacts / "ranks"
            shutil.rmtree(folder, ignore_errors=True)  # from an earlier start of this run
            folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rank = trainer.strategy.broadcast(folder), trainer.global_rank
        self._beat = min(LONGEST_BEAT, self._waits / 10)
        self._ended = threading.Event()  # created here because an event cannot be sent to a spawned process
        threading.Thread(target=self._write_on, args=(self._folder,), daemon=True).start()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Sets the timeout only now, because ranks may differ in how long they take to start and to load data."""
        if trainer.world_size > 1 and self.timeout is not None:
            strategy = trainer.strategy
            timeout = timedelta(seconds=self.timeout)
            of_mesh = strategy.device_mesh.get_all_groups() if isinstance(strategy, ModelParallelStrategy) else []
            for group in (None, *of_mesh):
                distributed_c10d._set_pg_timeout(timeout, group)
            if isinstance(strategy.checkpoint_io, AtomicCheckpointIO):
                strategy.checkpoint_io.wait_at_most(timeout)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._pass(f"the forward pass of step {trainer.global_step}")

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor) -> None:
        self._pass(f"the backward pass of step {trainer.global_step}")

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        self._pass(f"the update of step {trainer.global_step}")

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._pass(f"what follows step {trainer.global_step - 1}")

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._pass(f"batch {batch_idx} of a validation")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._pass("what follows a validation")

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._pass("the saving of a checkpoint")

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._folder is None:
            return
        self._ended.set()
        if trainer.is_global_zero:
            shutil.rmtree(self._folder, ignore_errors=True)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        timed_out = isinstance(exception, RuntimeError) and TIMED_OUT.search(str(exception))
        if self._folder is None or not timed_out:
            return
        self._ended.set()
        self._write(self._folder, traceback.extract_tb(exception.__traceback__))
        say(self.missing(self._folder, trainer.world_size))
        for process in getattr(trainer.strategy.launcher, "procs", []):
            process.kill()  # a hanging rank would outlive this process

    def missing(self, folder: Path, world_size: int) -> str:
        """Reports the position of each rank that is behind this one or has stopped; of all others if none is."""
        notes = {rank: _read(folder / f"rank-{rank}.txt") for rank in range(world_size)}
        mine = notes.pop(self._rank) or Note(self._passed, self._place, "", 0.0)
        late = {rank: note for rank, note in notes.items() if note is None or self._is_late(note, mine)}
        stand = "; ".join(self._where(rank, note, mine) for rank, note in sorted((late or notes).items()))
        waited = f"rank {self._rank} has waited {self._waits:g} s in {mine.place} for another one"
        return f"{waited}: {stand}{'' if late else ', none of them behind it'}; stacks are in {folder}"

    def _is_late(self, note: Note, mine: Note) -> bool:
        return note.passed < mine.passed or mine.at - note.at > STALE * self._beat

    def _where(self, rank: int, note: Note | None, mine: Note) -> str:
        if note is None:
            return f"rank {rank} has not begun"
        silent = mine.at - note.at
        stopped = f", has said nothing for {silent:.0f} s" if silent > STALE * self._beat else ""
        return f"rank {rank} is in {note.place}, {note.line}{stopped}"

    def _pass(self, place: str) -> None:
        self._passed, self._place = self._passed + 1, place

    def _write_on(self, folder: Path) -> None:
        main = threading.main_thread().ident or 0
        while True:
            self._write(folder, traceback.extract_stack(sys._current_frames().get(main)))
            if self._ended.wait(self._beat):
                return

    def _write(self, folder: Path, stack: traceback.StackSummary) -> None:
        line = f"{Path(stack[-1].filename).name}:{stack[-1].lineno} in {stack[-1].name}"
        with suppress(CannotWriteError, OSError):  # a failed note must not end the fit
            text = [str(self._passed), self._place, line, "", *traceback.format_list(stack), *_of_other_threads()]
            write_atomically(folder / f"rank-{self._rank}.txt", "\n".join(text))


def _of_other_threads() -> list[str]:
    """Stacks of all threads except the main one and this one; one of them may be writing a checkpoint."""
    frames, here = sys._current_frames(), (threading.main_thread(), threading.current_thread())
    others = [thread for thread in threading.enumerate() if thread not in here and thread.ident in frames]
    return [line for one in others for line in (one.name, "", *traceback.format_stack(frames[one.ident or 0]))]


def _read(file: Path) -> Note | None:
    try:
        passed, place, line, *_ = file.read_text(encoding="utf-8").splitlines()
        return Note(int(passed), place, line, file.stat().st_mtime)
    except FileNotFoundError:
        return None
