"""Checkpoint files that are whole or absent, and that are refused when a single bit is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins import CheckpointIO
from torch import nn
from torch.distributed import distributed_c10d
from torch.optim import Optimizer

from seqlab.checkpoints.checksummed_file import load_sealed, save_sealed
from seqlab.checkpoints.sharded import SHARDS, in_memory, load_shards, remove_shards, save_shards
from seqlab.files.atomic import writing


class AtomicCheckpointIO(CheckpointIO):
    """Writes a checkpoint whole or not at all, and loads only what is intact and harmless.

    A checkpoint is written to a temporary file in its own folder, synced, and renamed into place, so that whatever
    kills the process leaves the old file or the new one. It loads with `weights_only`, always.

    It carries its own sha256, as the comment that the zip format allows at the end of a file. A second file could
    not be renamed in the same instant, and would stay behind when the checkpoint is copied; this way it is one
    ordinary torch file, which `torch.load` reads too.

    Args:
        check: looks at what is loaded before it is used, and raises ValueError if it does not fit.
        in_background: takes a copy of the checkpoint, in the memory of the CPU, and has a thread write it. One is
            written at a time: a second waits for the first, and raises what was wrong with it.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None] | None = None, *, in_background: bool = False) -> None:
        self._check = check
        self._background = _Background() if in_background else None
        self._processes: dist.ProcessGroup | None = None
        self._timeout: timedelta | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes the checkpoint, replacing an older one of that name.

        Raises:
            CannotWriteError: the file could not be written, or in the background the one before; an older one is
                untouched.
            ValueError: the checkpoint holds what would not load again; an older one is untouched.
        """
        self._save(_save_whole, checkpoint, Path(path))

    def save_shards(self, checkpoint: dict[str, Any], path: str | Path) -> None:
        """Saves as `save_checkpoint` does, a model spread over processes: each writes its shards, and must call it."""
        self._save(partial(save_shards, group=self._group()), checkpoint, Path(path))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[[Any, str], Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Reads a checkpoint with its tensors on the CPU; `map_location` and `weights_only` change nothing.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a seqlab checkpoint, is cut short or damaged, or holds more than tensors,
                numbers, strings, lists and dicts.
        """
        self.teardown()
        checkpoint = read_checkpoint(path)
        if self._check is not None:
            self._check(checkpoint)
        return checkpoint

    def load_shards(self, path: str | Path, task: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any] | None:
        """Loads as `load_checkpoint` does, into the weights of a task spread over processes; each must call it. The
        result has what its optimizers are to load; None where the checkpoint is in one file."""
        self.teardown()
        outline = load_sealed(path)
        if SHARDS not in outline:
            return None
        if self._check is not None:
            self._check(outline)
        return load_shards(outline, Path(path), task, optimizers, self._group())

    def remove_checkpoint(self, path: str | Path) -> None:
        self.teardown()
        Path(path).unlink(missing_ok=True)
        remove_shards(Path(path))

    def wait_at_most(self, timeout: timedelta) -> None:
        """Sets the longest wait for another process that writes shards; until then it is torch's 30 minutes."""
        self._timeout = timeout
        if self._processes is not None:
            distributed_c10d._set_pg_timeout(timeout, self._processes)

    def teardown(self) -> None:
        """Waits until what was begun is written; raises as `save_checkpoint`."""
        if self._background is not None:
            self._background.finish()

    def _save(self, save: Callable[[dict[str, Any], Path], None], checkpoint: dict[str, Any], path: Path) -> None:
        if self._background is None:
            save(checkpoint, path)
        else:
            self._background.save(save, checkpoint, path)

    def _group(self) -> dist.ProcessGroup:
        """Process group of all ranks for checkpoints alone: a thread may write one while the fit uses the others."""
        if self._processes is None:
            self._processes = dist.new_group(backend="gloo", timeout=self._timeout)
        return self._processes


def read_checkpoint(path: str | Path, *, weights: bool = True) -> dict[str, Any]:
    """A checkpoint that `AtomicCheckpointIO` saved, on the CPU, from one process or many; raises as
    `AtomicCheckpointIO.load_checkpoint`.

    Args:
        weights: False = weights in shards are not read; tensors of their shapes stand in for them.
    """
    checkpoint = load_sealed(path)
    return in_memory(checkpoint, Path(path)) if weights and SHARDS in checkpoint else checkpoint


class _Background:
    """A thread that writes one checkpoint at a time, from a copy that the next one is copied over."""

    def __init__(self) -> None:
        # Not torch's DefaultStager: that of torch 2.11 serves one save only.
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager

        self._stager = StateDictStager(pin_memory=torch.cuda.is_available())
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._written: Future[None] | None = None

    def save(self, save: Callable[[dict[str, Any], Path], None], checkpoint: dict[str, Any], path: Path) -> None:
        self.finish()
        self._written = self._thread.submit(save, self._stager.stage(checkpoint), path)

    def finish(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.result()


def _save_whole(checkpoint: dict[str, Any], path: Path) -> None:
    with writing(path, "the one before it is whole" if path.exists() else "there was none before it"):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_sealed(checkpoint, path)
    remove_shards(path)
