"""Labelled texts for classification: a LightningDataModule.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.base import check_split, tokenizer_digest
from seqlab_data.buckets import pad, pad_mask
from seqlab_data.example_source import Example, find_files, read_examples, split_examples
from seqlab_data.sentences import OnLong, SentenceDataModule
from seqlab_data.text_source import content_digest
from seqlab_data.tokenizers import Tokenizer, WordTokenizer


class LabelledRows:
    """Tokenized texts and their classes.

    Args:
        texts: the ids of each, without special tokens.
        classes: (N,) of each text.
    """

    def __init__(self, texts: list[NDArray[np.int32]], classes: Sequence[int], pad_id: int) -> None:
        self.texts = texts
        self.classes = torch.tensor(classes, dtype=torch.int64)
        self.pad_id = pad_id
        self.lengths = np.array([len(text) for text in texts], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The texts with these indices, (B,). With none, one text whose class is ignored."""
        wanted = indices if len(indices) else np.zeros(1, dtype=np.int64)
        texts = [self.texts[i] for i in wanted]
        classes = self.classes[torch.from_numpy(wanted)]
        if not len(indices):
            classes.fill_(IGNORE)
        return LabelledBatch(pad(texts, self.pad_id), pad_mask(texts), classes)


class LabelledTextDataModule(SentenceDataModule[LabelledBatch, LabelledRows]):
    """Texts, each with one of a few labels. docs/data.md has the guarantees.

    Args:
        train, val, test: a `.csv`, `.tsv` or `.jsonl` file with named columns each, a folder of `LABEL.txt` files, or
            a file of `label text` lines.
        split: shares of train, val and test in `train`, where it is divided by a hash of the text: a split that has a
            path of its own takes none of it.
        text, label: the columns that are read.
        tokenizer: makes the tokenizer from the train split's texts.
        max_len: the most tokens of a text.
        on_long: what becomes of a longer one: "refuse" the data, "drop" the text, "cut" its end.
        max_tokens: of a batch on each rank, padded: its texts x its longest.
        seed: of the order of the training batches.
        num_workers: processes that load batches; 0 = the training process itself.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    in_evaluation = ("tokenizer", "labels")

    def __init__(
        self,
        train: str,
        *,
        val: str | None = None,
        test: str | None = None,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        text: str = "text",
        label: str = "label",
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
        self.text = text
        self.label = label
        self.make_tokenizer = tokenizer

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.make_tokenizer("\n".join(example.text for example in self._examples["train"]))

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes: the train split's labels, sorted."""
        return sorted({example.label for example in self._examples["train"]})

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def describe(self) -> dict[str, Any]:
        """What a run records of its data."""
        splits = {name: {"texts": len(rows), "tokens": int(rows.lengths.sum())} for name, rows in self._rows.items()}
        return {
            "name": "labelled",
            "source": self.paths["train"],
            "digest": self._digest,
            "splits": splits,
            "dropped": self.dropped,
            "labels": self.labels,
            "tokenizer": type(self.tokenizer).__name__,
            "vocab_size": self.vocab_size,
        }

    @cached_property
    def _examples(self) -> dict[str, list[Example]]:
        read = {split: read_examples(path, text=self.text, label=self.label) for split, path in self.paths.items()}
        shares = dict(zip(("train", "val", "test"), self.split, strict=True))
        divided = {split: share for split, share in shares.items() if split == "train" or split not in read}
        return read | split_examples(read["train"], divided)

    @cached_property
    def _digest(self) -> str:
        return content_digest([file for path in self.paths.values() for file in find_files(path)])

    def _read(self) -> dict[str, LabelledRows]:
        return {split: self._encode(split, examples) for split, examples in self._examples.items()}

    def _encode(self, split: str, examples: list[Example]) -> LabelledRows:
        class_of = {label: number for number, label in enumerate(self.labels)}
        texts: list[NDArray[np.int32]] = []
        classes: list[int] = []
        for example in examples:
            if example.label not in class_of:
                raise ValueError(
                    f"{example.place} has the label {example.label!r}, which the train split lacks; it has "
                    f"{', '.join(self.labels)}"
                )
            fitting = self._fit(split, example.place, self.tokenizer.encode_array(example.text), room=self.max_len)
            if fitting is not None:
                texts += fitting
                classes.append(class_of[example.label])
        return LabelledRows(texts, classes, self.tokenizer.pad_id)

    def _identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": ", ".join(map(str, self.split)),
            "columns": f"{self.text}, {self.label}",
            "labels": ", ".join(self.labels),
            "tokenizer": tokenizer_digest(self.tokenizer),
            **super()._identity(),
        }
