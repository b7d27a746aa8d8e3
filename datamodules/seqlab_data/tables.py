"""Sequences of numeric features: a LightningDataModule.

T length, F features, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_data.annotated import AnnotatedDataModule
from seqlab_data.arrays import Record, WholeNumbers, check_alike, read_table
from seqlab_data.splits import complete_splits


class TableDataModule(AnnotatedDataModule[Record]):
    """Sequences of features, each with a class, a number or labels, or with labels for each frame. docs/data.md has
    the guarantees.

    Args:
        train, val, test: `.parquet` file, `.npz` file or folder of `.npy` files.
        features: feature column or array, or several to be concatenated.
        target: column or array of the targets.
        whole_numbers: interpretation of integer targets, "classes" or "numbers"; None = numbers for a `Regression`
            that `seqlab` fits, else classes.
        window: number of frames of the windows into which training sequences are cut, the last of each may be shorter;
            None = whole sequences. Validation and test sequences are whole. Needs labels for each frame.
        max_len: maximum length of a sequence, in frames.
        max_tokens: maximum number of frames in a padded batch on each rank: sequences x longest sequence.
        options: arguments of `AnnotatedDataModule`.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, a file is invalid.
    """

    in_evaluation = ("features", "target", "labels")
    units = ("sequence", "frames")
    kind = "table"
    remedy = f"{AnnotatedDataModule.remedy}, or give data.whole_numbers numbers if it is a number to predict"

    def __init__(
        self,
        train: str,
        *,
        features: str | list[str] = "inputs",
        target: str = "targets",
        whole_numbers: WholeNumbers | None = None,
        window: int | None = None,
        max_len: int = 1024,
        max_tokens: int = 16384,
        **options: Any,
    ) -> None:
        super().__init__(train, max_len=max_len, max_tokens=max_tokens, **options)
        self.features = [features] if isinstance(features, str) else list(features)
        self.target = target
        self.whole_numbers = whole_numbers
        self.window = window
        if window is not None and window < 1:
            raise ValueError(f"data.window must be at least 1, got {window}")
        if len({*self.features, target}) <= len(self.features):
            raise ValueError(
                f"data.features {', '.join(self.features)} and data.target {target} must all differ; name each once"
            )

    @property
    def num_features(self) -> int:
        """F, the number of features."""
        return int(self._first.inputs.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes, if the target is a class.

        Raises:
            AttributeError: the target is not a class, so that no number is passed to a task.
        """
        if not self.labels:
            raise AttributeError(f"data.target is {self._first.kind}, not a class")
        return len(self.labels)

    @property
    def num_labels(self) -> int:
        """C, the number of labels, if the targets are labels.

        Raises:
            AttributeError: the targets are not labels, so that no number is passed to a task.
        """
        if not isinstance(self._first.target, np.ndarray):
            raise AttributeError(f"data.target is {self._first.kind}, not labels")
        return int(self._first.target.shape[-1])

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record."""
        told = {"features": self.features, "target": self._first.kind, "labels": self.labels}
        return {**super().describe(), **told}

    @property
    def _first(self) -> Record:
        """First training row, which all others match in features and kind of target."""
        return self._found[0]["train"][0]

    def _read_paths(self) -> tuple[dict[str, list[Record]], str]:
        read = {
            split: read_table(path, features=self.features, target=self.target, whole_numbers=self.whole_numbers)
            for split, path in self.paths.items()
        }
        rows = [row for some in read.values() for row in some]
        check_alike(rows)
        if self.window is not None and not rows[0].of_frames:
            raise ValueError(f"data.window needs labels for each frame, and data.target is {rows[0].kind}")
        digest = sha256()
        for row in rows:
            target = row.target.tobytes() if isinstance(row.target, np.ndarray) else repr(row.target).encode()
            digest.update(f"{row.inputs.shape} {len(target)} ".encode() + row.content + target)
        return read, digest.hexdigest()

    @cached_property
    def _examples(self) -> dict[str, list[Record]]:
        splits = complete_splits(self._found[0], self.split)
        if self.window is not None:
            splits["train"] = [part for row in splits["train"] for part in row.windows(self.window)]
        return splits

    def _inputs(self) -> Mapping[str, Sequence[NDArray[np.float32]]]:
        return {split: [row.inputs for row in rows] for split, rows in self._examples.items()}

    def _labels_of(self, example: Record) -> tuple[str, ...]:
        return (example.target,) if isinstance(example.target, str) else ()

    def _target(self, example: Record) -> NDArray[Any]:
        if isinstance(example.target, str):
            return np.array(self.class_at(example.place, example.target))  # ()
        return np.asarray(example.target, dtype=np.float32)  # (), (C,) or (T, C)

    def identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": ", ".join(map(str, self.split)),
            "features": f"{', '.join(self.features)} ({self.num_features})",
            "target": self._first.kind,
            "labels": ", ".join(self.labels),
            **super().identity(),
        }
