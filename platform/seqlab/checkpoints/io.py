"""Atomic, checksummed checkpoint files; a single wrong bit is detected on loading."""

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

from seqlab.checkpoints.checksummed_file import load_checksummed, save_checksummed
from seqlab.checkpoints.sharded import SHARDS, in_memory, load_shards, remove_shards, save_shards
from seqlab.files.atomic import writing


class AtomicCheckpointIO(CheckpointIO):
    """Writes checkpoints atomically, and loads only intact checkpoints of plain values and tensors.

    A checkpoint is written to a temporary file in its own folder, synced, and renamed into place. A process killed at
    any time leaves either the old file or the new one. Loading always uses `weights_only`.

    The sha256 is stored in the file itself, as the comment at the end of the zip format. A separate checksum file could
    not be renamed in the same instant and could get lost when the checkpoint is copied. The result is an ordinary torch
    file, which `torch.load` also reads.

    Args:
        check: validates a loaded checkpoint before it is used; raises ValueError if it does not fit.
        in_background: copy the checkpoint to CPU memory and write it in a thread. One checkpoint is written at a time;
            the next save waits for the previous one and raises its error.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None] | None = None, *, in_background: bool = False) -> None:
        self._check = check
        self._background = _Background() if in_background else None
        self._processes: dist.ProcessGroup | None = None
        self._timeout: timedelta | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes the checkpoint, replacing an older one of that name.

        Raises:
            CannotWriteError: the file, or the previous one written in the background, could not be written. An older
                file is not touched.
            ValueError: the checkpoint contains something that could not be loaded again. An older file is not touched.
        """
        self._save(_save_whole, checkpoint, Path(path))

    def save_shards(self, checkpoint: dict[str, Any], path: str | Path) -> None:
        """Saves a sharded model like `save_checkpoint`. Each rank writes its shards, and every rank must call it."""
        self._save(partial(save_shards, group=self._group()), checkpoint, Path(path))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[[Any, str], Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Reads a checkpoint with its tensors on the CPU; `map_location` and `weights_only` are ignored.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is not a seqlab checkpoint, is truncated or damaged, or contains objects other than
                tensors, numbers, strings, lists and dicts.
        """
        self.teardown()
        checkpoint = read_checkpoint(path)
        if self._check is not None:
            self._check(checkpoint)
        return checkpoint

    def load_shards(self, path: str | Path, task: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any] | None:
        """Loads like `load_checkpoint`, directly into the weights of a sharded task. Every rank must call it. Returns
        the checkpoint with the state for the optimizers to load, or None if the checkpoint is a single file."""
        self.teardown()
        outline = load_checksummed(path)
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
        """Sets the timeout for waiting on other ranks that write shards; torch's default is 30 minutes."""
        self._timeout = timeout
        if self._processes is not None:
            distributed_c10d._set_pg_timeout(timeout, self._processes)

    def teardown(self) -> None:
        """Waits for a pending background write; raises as `save_checkpoint`."""
        if self._background is not None:
            self._background.finish()

    def _save(self, save: Callable[[dict[str, Any], Path], None], checkpoint: dict[str, Any], path: Path) -> None:
        if self._background is None:
            save(checkpoint, path)
        else:
            self._background.save(save, checkpoint, path)

    def _group(self) -> dist.ProcessGroup:
        """Process group of all ranks for checkpoints only: a background thread may use it while the fit uses others."""
        if self._processes is None:
            self._processes = dist.new_group(backend="gloo", timeout=self._timeout)
        return self._processes


def read_checkpoint(path: str | Path, *, weights: bool = True) -> dict[str, Any]:
    """Reads a checkpoint saved by `AtomicCheckpointIO`, sharded or not, on the CPU; raises as
    `AtomicCheckpointIO.load_checkpoint`.

    Args:
        weights: False = do not read sharded weights; placeholder tensors of their shapes are returned instead.
    """
    checkpoint = load_checksummed(path)
    return in_memory(checkpoint, Path(path)) if weights and SHARDS in checkpoint else checkpoint


class _Background:
    """A thread that writes one checkpoint at a time, from a staging buffer that is reused."""

    def __init__(self) -> None:
        # torch's DefaultStager works for only one save in torch 2.11.
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
        save_checksummed(checkpoint, path)
    remove_shards(path)
