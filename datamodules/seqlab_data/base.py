"""Base of every data module of sequences: loaders over an endless sequence of batches, with exact resume."""

from __future__ import annotations

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Generic

import lightning as L
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler

from seqlab_data.batches import Batches, BatchT, EpochOrder, FromNext, Rows, TrainLoader, epoch_order
from seqlab_data.tokenizers import Tokenizer


class SequenceDataModule(L.LightningDataModule, ABC, Generic[BatchT]):
    """Loaders whose order is a pure function of seed, epoch, batch, rank and world, for any number of workers.

    The number of batches done is the only state: a resumed fit continues with the next batch. A subclass provides its
    rows, identity and description, and the attributes its task needs, such as `vocab_size` and `seq_len`.

    Args:
        seed: random seed for the order of the training batches.
        num_workers: number of data-loading processes; 0 = load in the training process.
        batch_size: rows per batch on each rank; unused when rows are read in groups.

    Attributes:
        in_evaluation: identity fields that must match the checkpoint even for evaluation, since scores would be
            meaningless otherwise.
        between_epochs: identity fields that may change at an epoch boundary.

    Raises:
        ValueError: an argument is out of range.
    """

    in_evaluation: ClassVar[tuple[str, ...]] = ()
    between_epochs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, seed: int = 0, num_workers: int = 0, batch_size: int = 1) -> None:
        super().__init__()
        check_at_least(0, seed=seed, num_workers=num_workers)
        check_at_least(1, batch_size=batch_size)
        self.seed = seed
        self.num_workers = num_workers
        self.batch_size = batch_size
        self._resumed = {"epoch": 0, "batch": 0, "batches": 0}

    @abstractmethod
    def rows(self, split: str) -> Rows[BatchT]:
        """Rows from which the batches of "train", "val" or "test" are read."""

    def groups(self, split: str) -> Sequence[NDArray[np.int64]] | None:
        """Row indices of each batch on a rank, (B,) each; None = batches of consecutive rows in the epoch's order."""
        return None

    def order(self, split: str) -> EpochOrder:
        """Order function of an epoch, which takes the number of rows or groups, the seed and the epoch."""
        return epoch_order

    @abstractmethod
    def identity(self) -> dict[str, int | str]:
        """Everything that determines the content and the order of the batches, "seed" included."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record: "name", "source", "digest", "splits" and anything else known
        about it."""

    def place(self, split: str, row: int) -> str | None:
        """File of a row of a split, and the position in it; None = only the row number identifies it."""
        return None

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) of the next training batch, derived from the number of batches trained on."""
        return divmod(self._next_number(), len(self._batches("train")))

    def setup(self, stage: str) -> None:
        """Prepares the data; a fit starts at the first batch unless a state is loaded afterwards."""
        if stage == "fit":
            self._resumed = {"epoch": 0, "batch": 0, "batches": 0}

    def train_dataloader(self) -> DataLoader[BatchT]:
        if getattr(self.trainer, "overfit_batches", 0):
            return self._loader(self._batches("train"))
        batches = self._batches("train", shuffle=True)
        return self._loader(batches, TrainLoader, sampler=FromNext(self._next_number, len(batches)))

    def val_dataloader(self) -> DataLoader[BatchT]:
        return self._loader(self._batches("val"))

    def test_dataloader(self) -> DataLoader[BatchT]:
        return self._loader(self._batches("test"))

    def predict_dataloader(self) -> DataLoader[BatchT]:
        """The test split."""
        return self.test_dataloader()

    def state_dict(self) -> dict[str, int | str]:
        """Identity of the batches, and the position of the next batch: (epoch, batch). The end of an epoch is
        (epoch + 1, 0)."""
        epoch, batch = self.position
        _, world = self._rank_and_world()
        return {
            **self.identity(),
            "world": world,
            "epoch": epoch,
            "batch": batch,
            "batches": self._batches_trained(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes where `state_dict` was taken.

        Raises:
            ValueError: the data differs, or the batches differ in the middle of an epoch, or the checkpoint lacks an
                identity field. Outside of a fit, only the fields in `in_evaluation` are compared.
        """
        mine = {**self.identity(), "world": self._rank_and_world()[1]}
        if self.trainer is not None and self.trainer.state.fn != TrainerFn.FITTING:
            mine = {name: mine[name] for name in self.in_evaluation}
        elif not state["batch"]:
            mine = {name: value for name, value in mine.items() if name not in (*self.between_epochs, "world")}
        for name, value in mine.items():
            if name not in state:
                raise ValueError(
                    f"the checkpoint, of an older version, does not store the {name} that it was trained with; "
                    "fit again, or start from its weights with --init_from RUN"
                )
            if state[name] != value:
                raise ValueError(
                    f"the checkpoint was trained with {name} {state[name]}, but this data has {name} {value}; "
                    "continue with the data and settings of the checkpoint"
                )
        self._resumed = {name: state[name] for name in self._resumed}

    def _batches(self, split: str, *, shuffle: bool = False) -> Batches[BatchT]:
        """This rank's batches of a split, in the split's own order unless shuffled."""
        rank, world = self._rank_and_world()
        seed = self.seed if shuffle else None
        rows, groups = self.rows(split), self.groups(split)  # `rows` first: it raises the error for a missing split
        size = self.batch_size if groups is None else 1
        order = self.order(split)
        return Batches(rows, size, groups=groups, seed=seed, order=order, rank=rank, world=world)

    def _loader(
        self,
        batches: Batches[BatchT],
        loader: type[DataLoader[BatchT]] = DataLoader,
        sampler: Sampler[int] | None = None,
    ) -> DataLoader[BatchT]:
        return loader(
            batches,
            batch_size=None,
            sampler=sampler,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            worker_init_fn=_leave_signals_to_the_fit,
            pin_memory=torch.cuda.is_available(),
        )

    def _next_number(self) -> int:
        """Index of the next training batch in the endless sequence of batches."""
        start = self._resumed["epoch"] * len(self._batches("train")) + self._resumed["batch"]
        return start + max(0, self._batches_trained() - self._resumed["batches"])

    def _batches_trained(self) -> int:
        """Number of batches trained on over all epochs. Lightning's epoch counter is not used: after a resume, epochs
        may be cut short or counted twice."""
        if self.trainer is None:
            return 0
        total: Any = self.trainer.fit_loop.epoch_loop.batch_progress.total
        return int(total.processed)

    def _rank_and_world(self) -> tuple[int, int]:
        share = self.trainer.distributed_sampler_kwargs if self.trainer is not None else None
        return (share["rank"], share["num_replicas"]) if share else (0, 1)


def _leave_signals_to_the_fit(worker: int) -> None:
    """Makes a worker ignore signals that SLURM (warning) and a terminal (Ctrl-C) send to every process of a job; the
    fit stops its workers itself."""
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def check_at_least(least: int, **options: int) -> None:
    """Rejects options of `data` below `least`.

    Raises:
        ValueError: an option is smaller.
    """
    for name, value in options.items():
        if value < least:
            raise ValueError(f"data.{name} must be at least {least}, got {value}")


def tokenizer_digest(*tokenizers: Tokenizer) -> str:
    """sha256 of the tokenizers' serialised definitions."""
    described = ",".join(json.dumps(tokenizer.to_dict(), sort_keys=True) for tokenizer in tokenizers)
    return sha256(described.encode()).hexdigest()
