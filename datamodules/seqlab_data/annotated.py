"""What the data modules of labelled texts, tagged texts and tables share: sequences of which something is to be said.

B batch, N sequences, T length, F features, C labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.base import tokenizer_digest
from seqlab_data.batches import pad, pad_mask
from seqlab_data.cache import EncodedTexts, encode_texts
from seqlab_data.documents import check_encoding, content_digest
from seqlab_data.reading import UTF_8
from seqlab_data.records import Source
from seqlab_data.sentences import SentenceDataModule
from seqlab_data.splits import HasContent, check_filled, check_split, complete_splits, given_splits
from seqlab_data.tokenizers import Tokenizer, WordTokenizer


class Annotated(HasContent, Protocol):
    """A sequence and what is said of it; its file, and where in it."""

    @property
    def place(self) -> str: ...


class AnnotatedText(Annotated, Protocol):
    """A text and what is said of it."""

    @property
    def text(self) -> str: ...


SHOWN = 20
"""Labels that an error lists."""
ExampleT = TypeVar("ExampleT", bound=Annotated)
TextT = TypeVar("TextT", bound=AnnotatedText)


class AnnotatedRows:
    """The sequences of one split, and their targets.

    Args:
        inputs: of each its ids, (T,) int32, or its features, (T, F) float32.
        targets: of each a class, () int64, a number, () float32, or 0s and 1s, (C,) float32; or of each of its places
            a class, (T,) int32, or 0s and 1s, (T, C) float32.
        places: of each its file, and where in it.
        fill: what stands in inputs at pads.
    """

    def __init__(
        self, inputs: Sequence[NDArray[Any]], targets: Sequence[NDArray[Any]], places: Sequence[str], fill: float
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.places = places
        self.fill = fill
        self.lengths = np.array([len(some) for some in inputs], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The sequences with these indices, (B,): inputs (B, T) or (B, T, F), targets (B,), (B, C), (B, T) or
        (B, T, C), not a number or `IGNORE` at pads."""
        inputs, found = [self.inputs[i] for i in indices], [self.targets[i] for i in indices]
        if at_each_place(found[0]):
            targets = pad(found, IGNORE if found[0].dtype.kind == "i" else np.nan)
        else:
            targets = torch.from_numpy(np.stack(found))
        return LabelledBatch(pad(inputs, self.fill), pad_mask(inputs), targets, torch.tensor(indices))


def check_classes(labels: Sequence[str], name: str) -> None:
    """Refuses one class alone.

    Raises:
        ValueError: says which.
    """
    if len(labels) == 1:
        raise ValueError(f"{name}: the train split has no label but {labels[0]!r}; give examples of two at least")


def at_each_place(target: NDArray[Any]) -> bool:
    """Whether it is one of each place, (T,) int32 or (T, C), not one of the sequence, () or (C,) float32."""
    return target.ndim == 2 or (target.ndim == 1 and target.dtype.kind == "i")


class AnnotatedDataModule(SentenceDataModule[LabelledBatch, AnnotatedRows], Generic[ExampleT]):
    """Sequences of which something is to be said, as a class of a few or otherwise.

    A subclass reads its paths, and gives each example's inputs, labels and target.

    Args:
        train, val, test: where each split is read.
        split: shares of train, val and test in `train`, where it is divided by a hash of the content, of all but
            the labels: a split that has a path of its own takes none of it.
        options: those of `SentenceDataModule`.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    paths: Mapping[str, str]
    kind: str
    """What such data is called in a report."""
    remedy = "train on an example of it, or leave it out"
    """What to do about a label that train lacks."""

    def __init__(
        self,
        train: str,
        *,
        val: str | None = None,
        test: str | None = None,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_split(split)
        self.paths = given_splits(train=train, val=val, test=test)
        self.split = tuple(split)

    @abstractmethod
    def _read_paths(self) -> tuple[dict[str, list[ExampleT]], str]:
        """The examples of each path, in order, and the digest of all that was read."""

    @abstractmethod
    def _inputs(self) -> Mapping[str, Sequence[NDArray[Any]]]:
        """What is read of each example of each split."""

    @abstractmethod
    def _labels_of(self, example: ExampleT) -> Sequence[str]:
        """The labels of an example."""

    @abstractmethod
    def _target(self, example: ExampleT) -> NDArray[Any]:
        """What is to be said of an example, as `AnnotatedRows` take it."""

    @cached_property
    def _found(self) -> tuple[dict[str, list[ExampleT]], str]:
        return self._read_paths()

    @property
    def _digest(self) -> str:
        return self._found[1]

    @cached_property
    def _examples(self) -> dict[str, list[ExampleT]]:
        return complete_splits(self._found[0], self.split)

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes: the train split's labels, sorted."""
        return sorted({label for example in self._examples["train"] for label in self._labels_of(example)})

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    @cached_property
    def _classes(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def class_at(self, place: str, label: str) -> int:
        """The class of a label that stands at a place.

        Raises:
            ValueError: train lacks it.
        """
        if label not in self._classes:
            more = len(self.labels) - SHOWN
            known = ", ".join(self.labels[:SHOWN]) + (f" and {more} more" if more > 0 else "")
            raise ValueError(
                f"{place} has the label {label!r}, which the train split lacks; it has {known}; {self.remedy}"
            )
        return self._classes[label]

    def describe(self) -> dict[str, Any]:
        """What a run records of its data."""
        one, length = self.units
        splits = {name: {f"{one}s": len(rows), length: int(rows.lengths.sum())} for name, rows in self._rows.items()}
        source = self.paths["train"]
        return {"name": self.kind, "source": source, "digest": self._digest, "splits": splits, "dropped": self.dropped}

    @property
    def _fill(self) -> float:
        """What stands in inputs at pads."""
        return 0.0

    def _read(self) -> dict[str, AnnotatedRows]:
        check_filled(self._examples, self.paths["train"], self.units[0], self.paths)
        check_classes(self.labels, self.paths["train"])
        inputs = self._inputs()
        return {split: self._fitting(split, some, inputs[split]) for split, some in self._examples.items()}

    def _fitting(self, split: str, examples: list[ExampleT], inputs: Sequence[NDArray[Any]]) -> AnnotatedRows:
        """The rows of the examples that are not too long, or cut."""
        kept: list[NDArray[Any]] = []
        targets: list[NDArray[Any]] = []
        places: list[str] = []
        for example, given in zip(examples, inputs, strict=True):
            target = self._target(example)
            long = (given, target) if at_each_place(target) else (given,)
            if (fitting := self._fit(split, example.place, *long, room=self.max_len)) is not None:
                kept.append(fitting[0])
                targets.append(fitting[-1] if at_each_place(target) else target)
                places.append(example.place)
        return AnnotatedRows(kept, targets, places, self._fill)


class AnnotatedTextDataModule(AnnotatedDataModule[TextT]):
    """Texts of which something is to be said.

    Args:
        encoding: of the files' text.
        tokenizer: makes the tokenizer from the train split's texts.
        max_len: the most tokens of a text.
        max_tokens: of a batch on each rank, padded: its texts x its longest.
        options: those of `AnnotatedDataModule`.
    """

    in_evaluation = ("tokenizer", "labels")

    def __init__(
        self,
        train: str,
        *,
        encoding: str = UTF_8,
        tokenizer: Callable[[str], Tokenizer] = WordTokenizer,
        max_len: int = 128,
        max_tokens: int = 4096,
        **options: Any,
    ) -> None:
        super().__init__(train, max_len=max_len, max_tokens=max_tokens, **options)
        self.encoding = check_encoding(encoding)
        self.make_tokenizer = tokenizer

    @abstractmethod
    def _read_path(self, path: str) -> tuple[list[TextT], list[Source]]:
        """The examples of a path, in order, and the files that they are from."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self._encoded.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def describe(self) -> dict[str, Any]:
        """What a run records of its data."""
        tokenizer = {"tokenizer": type(self.tokenizer).__name__, "vocab_size": self.vocab_size}
        return {**super().describe(), "labels": self.labels, **tokenizer}

    def _read_paths(self) -> tuple[dict[str, list[TextT]], str]:
        read = {split: self._read_path(path) for split, path in self.paths.items()}
        examples = {split: some for split, (some, _) in read.items()}
        return examples, content_digest(source.content for _, sources in read.values() for source in sources)

    @cached_property
    def _encoded(self) -> EncodedTexts:
        learn_from = [example.text for example in self._examples["train"]]
        return encode_texts(self._texts(), learn_from, self.make_tokenizer)

    def _texts(self) -> Mapping[str, Sequence[str]]:
        """What is read of each example of each split."""
        return {split: [example.text for example in examples] for split, examples in self._examples.items()}

    def _inputs(self) -> Mapping[str, Sequence[NDArray[Any]]]:
        return self._encoded.ids

    @property
    def _fill(self) -> float:
        return self.tokenizer.pad_id

    def identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": ", ".join(map(str, self.split)),
            "labels": ", ".join(self.labels),
            "tokenizer": tokenizer_digest(self.tokenizer),
            **super().identity(),
        }
