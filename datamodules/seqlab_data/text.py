"""Text for language modelling: a LightningDataModule over windows of a token stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader, Sampler

from seqlab.batch import TokenBatch
from seqlab_data.batch_order import Batches, FromNext, TrainLoader
from seqlab_data.text_source import find_documents, source_name
from seqlab_data.token_cache import SPLITS, TokenCache, open_token_cache
from seqlab_data.tokenizers import CharTokenizer, Tokenizer
from seqlab_data.windows import Windows


class TextDataModule(L.LightningDataModule):
    """Any UTF-8 text, cut into train, val and test and packed into windows, with no token lost.

    The order of the batches is a pure function of seed, epoch, batch, rank and world, whatever the number of
    workers. A fit that resumes goes on at the next batch. docs/data.md has the guarantees.

    Args:
        path: a file, glob or folder, or a list of them; None = CPython's documentation.
        tokenizer: makes the tokenizer from the train split's text.
        seq_len: tokens a window.
        batch_size: windows a batch on each rank.
        split: shares of the text, by characters and in order, that are train, val and test.
        seed: of the order of the training windows.
        num_workers: processes that load batches; 0 = the training process itself.
        cache_dir: folder of the token caches; None = `$SEQLAB_CACHE`, or `seqlab` in the user's cache folder.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with the text.
    """

    def __init__(
        self,
        path: str | list[str] | None = None,
        *,
        tokenizer: Callable[[str], Tokenizer] = CharTokenizer,
        seq_len: int = 128,
        batch_size: int = 32,
        split: tuple[float, float, float] = (0.9, 0.05, 0.05),
        seed: int = 0,
        num_workers: int = 0,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("seq_len", seq_len, 1),
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
            ("num_workers", num_workers, 0),
        ):
            if value < least:
                raise ValueError(f"data.{name} must be at least {least}, got {value}")
        if len(split) != 3 or min(split) <= 0 or abs(sum(split) - 1) > 1e-9:
            raise ValueError(f"data.split must be three positive shares that sum to 1, got {tuple(split)}")
        self.path = path
        self.make_tokenizer = tokenizer
        self.seq_len = seq_len
        self.batch_size = batch_size
        self.split = tuple(split)
        self.seed = seed
        self.num_workers = num_workers
        self.cache_dir = cache_dir
        self._resumed = {"epoch": 0, "batch": 0, "batches": 0}

    @property
    def tokenizer(self) -> Tokenizer:
        return self._cache.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) of the next training batch, derived from how many batches have been trained on."""
        return divmod(self._next_number(), len(self._batches("train")))

    def describe(self) -> dict[str, Any]:
        """What a run records of its data. `tokens` are the predicted ones, `chars` what they stand for."""
        splits = {
            name: {"tokens": file.num_tokens - 1, "chars": file.num_chars} for name, file in self._cache.splits.items()
        }
        return {
            "name": "text",
            "source": source_name(self.path),
            "digest": self._cache.digest,
            "splits": splits,
            "tokenizer": type(self.tokenizer).__name__,
            "vocab_size": self.vocab_size,
        }

    def setup(self, stage: str) -> None:
        """Reads or makes the token cache.

        Raises:
            ValueError: what is wrong with the text, with the file and the byte.
        """
        if stage == "fit":
            self._resumed = {"epoch": 0, "batch": 0, "batches": 0}
        for split in SPLITS:
            self._batches(split)

    def train_dataloader(self) -> DataLoader[TokenBatch]:
        if getattr(self.trainer, "overfit_batches", 0):
            return self._loader(self._batches("train"))
        batches = self._batches("train", shuffle=True)
        return self._loader(batches, TrainLoader, sampler=FromNext(self._next_number, len(batches)))

    def val_dataloader(self) -> DataLoader[TokenBatch]:
        return self._loader(self._batches("val"))

    def test_dataloader(self) -> DataLoader[TokenBatch]:
        return self._loader(self._batches("test"))

    def predict_dataloader(self) -> DataLoader[TokenBatch]:
        """The test split."""
        return self.test_dataloader()

    def state_dict(self) -> dict[str, int | str]:
        """What decides the batches, and the next one: (epoch, batch), an epoch's end being (epoch + 1, 0)."""
        epoch, batch = self.position
        _, world = self._rank_and_world()
        return {
            **self._identity(),
            "batch_size": self.batch_size,
            "world": world,
            "epoch": epoch,
            "batch": batch,
            "batches": self._batches_trained(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken.

        Raises:
            ValueError: this is other data or, in the middle of an epoch, makes other batches. Only the tokenizer
                matters where nothing is fitted.
        """
        mine: dict[str, int | str] = self._identity()
        if self.trainer is not None and self.trainer.state.fn != TrainerFn.FITTING:
            mine = {"tokenizer": mine["tokenizer"]}
        elif state["batch"]:
            mine |= {"batch_size": self.batch_size, "world": self._rank_and_world()[1]}
        for name, value in mine.items():
            if state[name] != value:
                raise ValueError(
                    f"the checkpoint was trained with {name} {state[name]}, this data has {name} {value}; "
                    "go on with the data and settings that the checkpoint was trained with"
                )
        self._resumed = {name: state[name] for name in self._resumed}

    @cached_property
    def _cache(self) -> TokenCache:
        return open_token_cache(find_documents(self.path), self.split, self.make_tokenizer, self.cache_dir)

    def _batches(self, split: str, *, shuffle: bool = False) -> Batches:
        char_counts = self.tokenizer.char_counts(np.arange(self.vocab_size))
        windows = Windows(self._cache.splits[split], self.seq_len, char_counts)
        rank, world = self._rank_and_world()
        seed = self.seed if shuffle else None
        return Batches(windows, self.batch_size, seed=seed, rank=rank, world=world)

    def _loader(
        self,
        batches: Batches,
        loader: type[DataLoader[TokenBatch]] = DataLoader,
        sampler: Sampler[int] | None = None,
    ) -> DataLoader[TokenBatch]:
        return loader(
            batches,
            batch_size=None,
            sampler=sampler,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def _next_number(self) -> int:
        """The number of the next training batch in the endless sequence of batches."""
        start = self._resumed["epoch"] * len(self._batches("train")) + self._resumed["batch"]
        return start + max(0, self._batches_trained() - self._resumed["batches"])

    def _batches_trained(self) -> int:
        """Over all epochs. Lightning's epochs are not asked: after a resume they may be cut or counted twice."""
        if self.trainer is None:
            return 0
        total: Any = self.trainer.fit_loop.epoch_loop.batch_progress.total
        return int(total.processed)

    def _rank_and_world(self) -> tuple[int, int]:
        share = self.trainer.distributed_sampler_kwargs if self.trainer is not None else None
        return (share["rank"], share["num_replicas"]) if share else (0, 1)

    def _identity(self) -> dict[str, int | str]:
        """What decides the order and the content of the windows."""
        tokenizer = json.dumps(self.tokenizer.to_dict(), sort_keys=True)
        return {
            "data": self._cache.digest,
            "split": ", ".join(map(str, self.split)),
            "tokenizer": sha256(tokenizer.encode()).hexdigest(),
            "seq_len": self.seq_len,
            "seed": self.seed,
        }
