"""What the data modules of labelled and of tagged texts share: their splits, their tokenizer and their labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from seqlab.batch import LabelledBatch
from seqlab_data.base import check_split, tokenizer_digest
from seqlab_data.encoded_texts import EncodedTexts, encode_texts
from seqlab_data.sentences import OnLong, RowsT, SentenceDataModule
from seqlab_data.splits import HasContent, complete_splits
from seqlab_data.text_source import UTF_8, Document, check_encoding, content_digest
from seqlab_data.tokenizers import Tokenizer, WordTokenizer


class HasText(HasContent, Protocol):
    """A text, and what is said of it."""

    @property
    def text(self) -> str: ...


HasTextT = TypeVar("HasTextT", bound=HasText)


class AnnotatedDataModule(SentenceDataModule[LabelledBatch, RowsT], Generic[HasTextT, RowsT]):
    """Texts of which something is to be said with one of a few labels.

    A subclass finds and reads files (`_files`, `_read_examples`), names the labels and encodes a split's examples.

    Args:
        train, val, test: where each split is read.
        split: shares of train, val and test in `train`, where it is divided by a hash of the text: a split that has a
            path of its own takes none of it.
        encoding: of the files' text.
        tokenizer: makes the tokenizer from the train split's texts.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    in_evaluation = ("tokenizer", "labels")
    kind = "annotated"

    def __init__(
        self,
        train: str,
        *,
        val: str | None = None,
        test: str | None = None,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        encoding: str = UTF_8,
        tokenizer: Callable[[str], Tokenizer] = WordTokenizer,
        max_len: int = 128,
        on_long: OnLong = "refuse",
        max_tokens: int = 4096,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(max_len=max_len, on_long=on_long, max_tokens=max_tokens, seed=seed, num_workers=num_workers)
        check_split(split)
        self.paths = {
            name: path for name, path in {"train": train, "val": val, "test": test}.items() if path is not None
        }
        self.split = tuple(split)
        self.encoding = check_encoding(encoding)
        self.make_tokenizer = tokenizer

    @abstractmethod
    def _files(self, path: str) -> list[Document]:
        """The files of a path."""

    @abstractmethod
    def _read_examples(self, path: str) -> list[HasTextT]:
        """The examples of a path, in order."""

    @abstractmethod
    def _labels_of(self, example: HasTextT) -> tuple[str, ...]:
        """The labels of an example."""

    @abstractmethod
    def _encode(self, split: str, examples: list[tuple[HasTextT, NDArray[np.int32]]]) -> RowsT:
        """The rows of a split, of its examples and their ids."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self._encoded.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes: the train split's labels, sorted."""
        return sorted({label for example in self._examples["train"] for label in self._labels_of(example)})

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def describe(self) -> dict[str, Any]:
        """What a run records of its data."""
        splits = {name: {"texts": len(rows), "tokens": int(rows.lengths.sum())} for name, rows in self._rows.items()}
        return {
            "name": self.kind,
            "source": self.paths["train"],
            "digest": self._digest,
            "splits": splits,
            "dropped": self.dropped,
            "labels": self.labels,
            "tokenizer": type(self.tokenizer).__name__,
            "vocab_size": self.vocab_size,
        }

    @cached_property
    def _examples(self) -> dict[str, list[HasTextT]]:
        return complete_splits({split: self._read_examples(path) for split, path in self.paths.items()}, self.split)

    @cached_property
    def _encoded(self) -> EncodedTexts:
        texts = {split: [example.text for example in examples] for split, examples in self._examples.items()}
        return encode_texts(texts, texts["train"], self.make_tokenizer)

    @cached_property
    def _digest(self) -> str:
        return content_digest([file for path in self.paths.values() for file in self._files(path)])

    @cached_property
    def _class_of(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def _read(self) -> dict[str, RowsT]:
        return {
            split: self._encode(split, list(zip(examples, self._encoded.ids[split], strict=True)))
            for split, examples in self._examples.items()
        }

    def _identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": ", ".join(map(str, self.split)),
            "labels": ", ".join(self.labels),
            "tokenizer": tokenizer_digest(self.tokenizer),
            **super()._identity(),
        }


def class_at(place: str, label: str, classes: Mapping[str, int]) -> int:
    """The class of a label that stands at a place.

    Raises:
        ValueError: train lacks it.
    """
    if label not in classes:
        raise ValueError(f"{place} has the label {label!r}, which the train split lacks; it has {', '.join(classes)}")
    return classes[label]
