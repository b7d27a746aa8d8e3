"""Base class of data modules for separate sequences: a length limit, and batches of similar length."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from seqlab_data.base import SequenceDataModule, check_at_least
from seqlab_data.batches import BatchT, Groups, Rows
from seqlab_data.documents import source_name

OnLong = Literal["refuse", "drop", "cut"]


class Sentences(Rows[BatchT], Protocol[BatchT]):
    """The rows of one split.

    Attributes:
        lengths: (N,) number of tokens of each row.
        places: (N,) file of each row, and its position in that file.
    """

    lengths: NDArray[np.int64]
    places: Sequence[str]


RowsT = TypeVar("RowsT", bound=Sentences[Any])
ScalarT = TypeVar("ScalarT", bound=np.generic)


class SentenceDataModule(SequenceDataModule[BatchT], Generic[BatchT, RowsT]):
    """Texts, or other sequences, of any length up to `max_len`, in batches of similar length.

    A subclass returns the rows of each split (`_read`), and applies the length limit with `_fit`.

    Args:
        max_len: maximum length of a text, in tokens.
        max_tokens: maximum number of tokens in a padded batch on each rank: number of rows x longest row.
        on_long: handling of longer texts: "refuse" the data, "drop" the row, or "cut" the end of the text.
        seed: random seed for the order of the training batches.
        num_workers: number of data-loading processes; 0 = load in the training process.

    Raises:
        ValueError: an argument is out of range.
    """

    between_epochs = ("max_tokens",)
    paths: Mapping[str, str | list[str]]
    """Path of each split that has one."""
    units: ClassVar[tuple[str, str]] = ("text", "tokens")
    """Word for a sequence, and the unit of its length."""

    def __init__(
        self, *, max_len: int, max_tokens: int, on_long: OnLong = "refuse", seed: int = 0, num_workers: int = 0
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers)
        check_at_least(2, max_len=max_len)
        check_at_least(max_len, max_tokens=max_tokens)
        if on_long not in ("refuse", "drop", "cut"):
            raise ValueError(f"data.on_long must be refuse, drop or cut, got {on_long}")
        self.max_len = max_len
        self.on_long = on_long
        self.max_tokens = max_tokens
        self._dropped: Counter[str] = Counter()
        self._groups = Groups()

    @property
    def seq_len(self) -> int:
        """Maximum sequence length that a model receives."""
        return self.max_len

    @property
    def dropped(self) -> dict[str, int]:
        """Number of rows dropped or truncated, by reason."""
        self._rows  # noqa: B018 (reads them)
        return dict(self._dropped)

    def place(self, split: str, row: int) -> str:
        return self._rows[split].places[row]

    @abstractmethod
    def _read(self) -> dict[str, RowsT]:
        """The rows of each split that exists."""

    @cached_property
    def _rows(self) -> dict[str, RowsT]:
        self._dropped.clear()
        rows = self._read()
        for split, some in rows.items():
            if not len(some):
                name = source_name(self.paths.get(split, self.paths["train"]))
                raise ValueError(
                    f"{name}: the {split} split has no row left, {self._reasons()}; give a larger data.max_len, or "
                    "other data"
                )
        return rows

    def rows(self, split: str) -> RowsT:
        if split not in self._rows:
            raise ValueError(f"{source_name(self.paths['train'])} has no {split} split; name its file in data.{split}")
        return self._rows[split]

    def groups(self, split: str) -> list[NDArray[np.int64]]:
        return self._groups.of(split, self.rows(split).lengths, self.max_tokens)

    def _fit(self, split: str, place: str, *texts: NDArray[ScalarT], room: int) -> tuple[NDArray[ScalarT], ...] | None:
        """A row's texts, each with at most `room` tokens; None = the row is dropped.

        Raises:
            ValueError: a text is longer, and `on_long` is "refuse".
        """
        longest = max(map(len, texts))
        if longest <= room:
            return texts
        text, tokens = self.units
        if self.on_long == "refuse":
            raise ValueError(
                f"{place} has a {text} of {longest} {tokens}, but data.max_len {self.max_len} leaves room for {room}; "
                "give a larger max_len, or on_long drop or cut"
            )
        self._dropped[f"{split}: over {room} {tokens}, {'dropped' if self.on_long == 'drop' else 'cut'}"] += 1
        return tuple(text[:room] for text in texts) if self.on_long == "cut" else None

    def setup(self, stage: str) -> None:
        """Reads the files, and reports dropped and truncated rows on stderr.

        Raises:
            ValueError: a file is invalid; the message names the file and line.
        """
        super().setup(stage)
        if self.dropped and self._rank_and_world()[0] == 0:
            print(f"data: {self._reasons()}", file=sys.stderr)

    def _reasons(self) -> str:
        return "; ".join(f"{reason}: {count}" for reason, count in self._dropped.items())

    def identity(self) -> dict[str, int | str]:
        return {"max_len": self.max_len, "on_long": self.on_long, "seed": self.seed, "max_tokens": self.max_tokens}
