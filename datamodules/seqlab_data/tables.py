"""Sequences of numeric features: a LightningDataModule.

B batch, T length, F features, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.annotated import class_at
from seqlab_data.base import check_split
from seqlab_data.batch_order import row_numbers
from seqlab_data.buckets import pad, pad_mask
from seqlab_data.sentences import OnLong, SentenceDataModule
from seqlab_data.splits import complete_splits
from seqlab_data.table_source import Row, check_alike, read_table


class TableRows:
    """Sequences and their targets.

    Args:
        inputs: (T, F) float32 of each.
        targets: of each a class, () int64, a number, () float32, or 0s and 1s, (C,) or (T, C) float32.
        places: of each its file and row.
    """

    def __init__(
        self, inputs: Sequence[NDArray[np.float32]], targets: Sequence[NDArray[Any]], places: Sequence[str]
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.places = places
        self.lengths = np.array([len(some) for some in inputs], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The sequences with these indices, (B,): inputs (B, T, F), targets (B,), (B, C) or (B, T, C), not a number at
        pads. With none, one sequence of whose target nothing counts."""
        wanted = indices if len(indices) else np.zeros(1, dtype=np.int64)
        inputs, found = [self.inputs[i] for i in wanted], [self.targets[i] for i in wanted]
        targets = pad(found, np.nan) if found[0].ndim == 2 else torch.from_numpy(np.stack(found))
        if not len(indices):
            targets.fill_(torch.nan if targets.is_floating_point() else IGNORE)
        return LabelledBatch(pad(inputs, 0.0), pad_mask(inputs), targets, row_numbers(indices))


class TableDataModule(SentenceDataModule[LabelledBatch, TableRows]):
    """Sequences of features, each with a class, a number or labels, or with labels for each frame. docs/data.md has
    the guarantees.

    Args:
        train, val, test: a `.parquet` file, an `.npz` file or a folder of `.npy` files each.
        split: shares of train, val and test in `train`, where it is divided by a hash of the features: a split that
            has a path of its own takes none of it.
        features: the column or array that is read, or several, side by side.
        target: the column or array of what is to be said.
        max_len: the most frames of a sequence.
        on_long: what becomes of a longer one: "refuse" the data, "drop" the sequence, "cut" its end.
        max_tokens: frames of a batch on each rank, padded: its sequences x its longest.
        seed: of the order of the training batches.
        num_workers: processes that load batches; 0 = the training process itself.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    in_evaluation = ("features", "target", "labels")
    units = ("sequence", "frames")

    def __init__(
        self,
        train: str,
        *,
        val: str | None = None,
        test: str | None = None,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        features: str | list[str] = "inputs",
        target: str = "targets",
        max_len: int = 1024,
        on_long: OnLong = "refuse",
        max_tokens: int = 16384,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(max_len=max_len, on_long=on_long, max_tokens=max_tokens, seed=seed, num_workers=num_workers)
        check_split(split)
        self.paths = {
            name: path for name, path in {"train": train, "val": val, "test": test}.items() if path is not None
        }
        self.split = tuple(split)
        self.features = [features] if isinstance(features, str) else list(features)
        self.target = target

    @property
    def num_features(self) -> int:
        """F."""
        return int(self._first.inputs.shape[1])

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes: the train split's, sorted; none where the target is no class."""
        return sorted({row.target for row in self._examples["train"] if isinstance(row.target, str)})

    @property
    def num_classes(self) -> int:
        """Of a class as the target.

        Raises:
            AttributeError: it is none, so that no task is told.
        """
        if not self.labels:
            raise AttributeError(f"data.target is {self._first.kind}, not a class")
        return len(self.labels)

    @property
    def num_labels(self) -> int:
        """C, of labels as the target.

        Raises:
            AttributeError: it is none, so that no task is told.
        """
        if not isinstance(self._first.target, np.ndarray):
            raise AttributeError(f"data.target is {self._first.kind}, not labels")
        return int(self._first.target.shape[-1])

    def describe(self) -> dict[str, Any]:
        """What a run records of its data."""
        return {
            "name": "table",
            "source": self.paths["train"],
            "digest": self._digest,
            "splits": {
                name: {"sequences": len(rows), "frames": int(rows.lengths.sum())} for name, rows in self._rows.items()
            },
            "dropped": self.dropped,
            "features": self.features,
            "target": self._first.kind,
            "labels": self.labels,
        }

    @cached_property
    def _paths_rows(self) -> dict[str, list[Row]]:
        read = {
            split: read_table(path, features=self.features, target=self.target) for split, path in self.paths.items()
        }
        check_alike([row for rows in read.values() for row in rows])
        return read

    @property
    def _first(self) -> Row:
        """A row that all others are like."""
        return self._paths_rows["train"][0]

    @cached_property
    def _examples(self) -> dict[str, list[Row]]:
        return complete_splits(self._paths_rows, self.split)

    def _read(self) -> dict[str, TableRows]:
        return {split: self._encode(split, rows) for split, rows in self._examples.items()}

    def _encode(self, split: str, examples: list[Row]) -> TableRows:
        classes = {label: number for number, label in enumerate(self.labels)}
        inputs: list[NDArray[np.float32]] = []
        targets: list[NDArray[Any]] = []
        places: list[str] = []
        for row in examples:
            target = (
                np.array(class_at(row.place, row.target, classes))
                if isinstance(row.target, str)
                else np.asarray(row.target, dtype=np.float32)
            )
            by_frame = target.ndim == 2
            fitting = self._fit(split, row.place, row.inputs, *([target] if by_frame else []), room=self.max_len)
            if fitting is not None:
                inputs.append(fitting[0])
                targets.append(fitting[1] if by_frame else target)
                places.append(row.place)
        return TableRows(inputs, targets, places)

    @cached_property
    def _digest(self) -> str:
        """sha256 of what is read of the files."""
        found = sha256()
        for rows in self._paths_rows.values():
            for row in rows:
                target = row.target.tobytes() if isinstance(row.target, np.ndarray) else repr(row.target).encode()
                found.update(f"{row.inputs.shape} {len(target)} ".encode() + row.content + target)
        return found.hexdigest()

    def _identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": ", ".join(map(str, self.split)),
            "features": f"{', '.join(self.features)} ({self.num_features})",
            "target": self._first.kind,
            "labels": ", ".join(self.labels),
            **super()._identity(),
        }
