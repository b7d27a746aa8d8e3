"""Data of your own: waves as sequences of levels, where a model predicts the next level.

A `SequenceDataModule` gives its rows, its identity and its description; the order of the batches, workers, ranks and
the exact resume come with it. A config names it by its class path. In this folder, in a few seconds:

$ python own_data.py
$ seqlab test waves --trust own_data
"""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import TokenBatch
from seqlab.cli import main
from seqlab_data import SequenceDataModule


class Levels:
    """Sequences of levels, (N, T + 1)."""

    def __init__(self, levels: NDArray[np.int64]) -> None:
        self.levels = torch.from_numpy(levels)

    def __len__(self) -> int:
        return len(self.levels)

    def read(self, indices: NDArray[np.int64], /) -> TokenBatch:
        """The sequences with these indices, (B,)."""
        rows = torch.tensor(indices)
        tokens, targets = self.levels[rows, :-1], self.levels[rows, 1:]  # (B, T), the targets one position later
        return TokenBatch(tokens, targets, num_chars=torch.full((len(rows),), targets.shape[1]), rows=rows)


class Waves(SequenceDataModule[TokenBatch]):
    """Sine waves of any frequency and phase.

    Args:
        num_levels: the number of different levels.
        num_train, num_eval: sequences of train, and of val and test each.
        seq_len: the length of a sequence.
        options: `batch_size`, `seed` and `num_workers`.
    """

    def __init__(
        self, *, num_levels: int = 16, num_train: int = 1000, num_eval: int = 100, seq_len: int = 32, **options: Any
    ) -> None:
        super().__init__(**options)
        self.vocab_size, self.seq_len = num_levels, seq_len  # the numbers that a language model needs
        counts = {"train": num_train, "val": num_eval, "test": num_eval}
        self._rows = {split: Levels(self._waves(number, counts[split])) for number, split in enumerate(counts)}

    def _waves(self, number: int, count: int) -> NDArray[np.int64]:
        draw = np.random.default_rng(number)
        frequency, phase = draw.uniform((0.1, 0.0), (0.6, 2 * np.pi), (count, 2)).T[..., None]  # (N, 1) each
        heights = (1 + np.sin(frequency * np.arange(self.seq_len + 1) + phase)) / 2  # (N, T + 1), from 0 to 1
        return np.rint(heights * (self.vocab_size - 1)).astype(np.int64)

    def rows(self, split: str) -> Levels:
        return self._rows[split]

    def identity(self) -> dict[str, int | str]:
        """Identity of this data, which a checkpoint has to match."""
        return {"data": self._digest(), "batch_size": self.batch_size, "seed": self.seed}

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record."""
        splits = {split: {"sequences": len(rows)} for split, rows in self._rows.items()}
        return {"name": "waves", "source": "made up", "digest": self._digest(), "splits": splits}

    def _digest(self) -> str:
        return sha256(b"".join(rows.levels.numpy().tobytes() for rows in self._rows.values())).hexdigest()


FIT = ["fit", "--config=lm/gru", "--run_name=waves", "--data=own_data.Waves", "--data.seq_len=32"]
FIT += ["--model.model.d_model=32", "--model.model.num_layers=1", "--model.lr=1e-2", "--trainer.max_steps=100"]

if __name__ == "__main__":
    sys.exit(main(FIT))
