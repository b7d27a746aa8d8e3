"""Base classes of the data modules for labelled texts, tagged texts and tables: sequences with annotations.

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
    """A sequence and its annotation, with its file and its position in that file."""

    @property
    def place(self) -> str: ...


class AnnotatedText(Annotated, Protocol):
    """A text and its annotation."""

    @property
    def text(self) -> str: ...


SHOWN = 20
"""Maximum number of labels listed in an error message."""
ExampleT = TypeVar("ExampleT", bound=Annotated)
TextT = TypeVar("TextT", bound=AnnotatedText)


class AnnotatedRows:
    """The sequences of one split, and their targets.

    Args:
        inputs: each sequence's ids, (T,) int32, or features, (T, F) float32.
        targets: each sequence's class, () int64, number, () float32, or 0s and 1s, (C,) float32; or, for each position,
            a class, (T,) int32, or 0s and 1s, (T, C) float32.
        places: each sequence's file, and the position in it.
        fill: padding value of the inputs.
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
        (B, T, C), NaN or `IGNORE` at padding."""
        inputs, found = [self.inputs[i] for i in indices], [self.targets[i] for i in indices]
        if at_each_place(found[0]):
            targets = pad(found, IGNORE if found[0].dtype.kind == "i" else np.nan)
        else:
            targets = torch.from_numpy(np.stack(found))
        return LabelledBatch(pad(inputs, self.fill), pad_mask(inputs), targets, torch.tensor(indices))


def check_classes(labels: Sequence[str], name: str) -> None:
    """Rejects data with a single class.

    Raises:
        ValueError: there is only one; the message names it.
    """
    if len(labels) == 1:
        raise ValueError(
            f"{name}: the train split has only the label {labels[0]!r}; give examples of at least two labels"
        )


def at_each_place(target: NDArray[Any]) -> bool:
    """True for per-position targets, (T,) int32 or (T, C); False for per-sequence targets, () or (C,) float32."""
    return target.ndim == 2 or (target.ndim == 1 and target.dtype.kind == "i")


class AnnotatedDataModule(SentenceDataModule[LabelledBatch, AnnotatedRows], Generic[ExampleT]):
    """Sequences with targets, such as a class for each.

    A subclass reads its paths, and returns each example's inputs, labels and target.

    Args:
        train, val, test: path of each split.
        split: fractions of `train` used as train, val and test, assigned by a hash of the content without its labels;
            a split that has its own path takes none of `train`.
        options: arguments of `SentenceDataModule`.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, a file is invalid.
    """

    paths: Mapping[str, str]
    kind: str
    """Name of this kind of data, for reports."""
    remedy = "train on an example of it, or leave it out"
    """Advice shown for a label that is missing from train."""

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
        """Inputs of each example of each split."""

    @abstractmethod
    def _labels_of(self, example: ExampleT) -> Sequence[str]:
        """The labels of an example."""

    @abstractmethod
    def _target(self, example: ExampleT) -> NDArray[Any]:
        """Target of an example, as `AnnotatedRows` takes it."""

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
        """Class names: the train split's labels, sorted."""
        return sorted({label for example in self._examples["train"] for label in self._labels_of(example)})

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    @cached_property
    def _classes(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def class_at(self, place: str, label: str) -> int:
        """Class id of the label found at a place.

        Raises:
            ValueError: the label is missing from train.
        """
        if label not in self._classes:
            more = len(self.labels) - SHOWN
            known = ", ".join(self.labels[:SHOWN]) + (f" and {more} more" if more > 0 else "")
            raise ValueError(
                f"{place} has the label {label!r}, which the train split lacks; it has {known}; {self.remedy}"
            )
        return self._classes[label]

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record."""
        one, length = self.units
        splits = {name: {f"{one}s": len(rows), length: int(rows.lengths.sum())} for name, rows in self._rows.items()}
        source = self.paths["train"]
        return {"name": self.kind, "source": source, "digest": self._digest, "splits": splits, "dropped": self.dropped}

    @property
    def _fill(self) -> float:
        """Padding value of the inputs."""
        return 0.0

    def _read(self) -> dict[str, AnnotatedRows]:
        check_filled(self._examples, self.paths["train"], self.units[0], self.paths)
        check_classes(self.labels, self.paths["train"])
        inputs = self._inputs()
        return {split: self._fitting(split, some, inputs[split]) for split, some in self._examples.items()}

    def _fitting(self, split: str, examples: list[ExampleT], inputs: Sequence[NDArray[Any]]) -> AnnotatedRows:
        """Rows of the examples that fit, after truncation where `on_long` allows it."""
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
    """Texts with targets, such as a class for each.

    Args:
        encoding: text encoding of the files.
        tokenizer: factory that builds the tokenizer from the train split's texts.
        max_len: maximum length of a text, in tokens.
        max_tokens: maximum number of tokens in a padded batch on each rank: number of texts x longest text.
        options: arguments of `AnnotatedDataModule`.
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
        """The examples of a path, in order, and the files they come from."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self._encoded.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record."""
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
        """Text of each example of each split."""
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
