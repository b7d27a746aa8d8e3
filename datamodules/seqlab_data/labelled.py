"""Labelled texts for classification: a LightningDataModule.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.annotated import AnnotatedDataModule, class_at
from seqlab_data.batch_order import row_numbers
from seqlab_data.buckets import pad, pad_mask
from seqlab_data.example_source import Example, find_files, read_examples
from seqlab_data.text_source import Document


class LabelledRows:
    """Tokenized texts and their classes.

    Args:
        texts: the ids of each, without special tokens.
        classes: (N,) of each text.
        places: of each text its file and line.
    """

    def __init__(
        self, texts: list[NDArray[np.int32]], classes: Sequence[int], places: Sequence[str], pad_id: int
    ) -> None:
        self.texts = texts
        self.places = places
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
        return LabelledBatch(pad(texts, self.pad_id), pad_mask(texts), classes, row_numbers(indices))


class LabelledTextDataModule(AnnotatedDataModule[Example, LabelledRows]):
    """Texts, each with one of a few labels. docs/data.md has the guarantees.

    Args:
        train, val, test: a `.csv`, `.tsv` or `.jsonl` file with named columns each, a folder of `LABEL.txt` files, a
            file of `label text` lines, or a Hugging Face dataset, `hf:NAME_OR_FOLDER@SPLIT`.
        split: shares of train, val and test in `train`, where it is divided by a hash of the text: a split that has a
            path of its own takes none of it.
        text, label: the columns that are read.
        encoding: of the files' text.
        tokenizer: makes the tokenizer from the train split's texts.
        max_len: the most tokens of a text.
        on_long: what becomes of a longer one: "refuse" the data, "drop" the text, "cut" its end.
        max_tokens: of a batch on each rank, padded: its texts x its longest.
        seed: of the order of the training batches.
        num_workers: processes that load batches; 0 = the training process itself.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    kind = "labelled"

    def __init__(self, train: str, *, text: str = "text", label: str = "label", **options: Any) -> None:
        super().__init__(train, **options)
        self.text = text
        self.label = label

    def _files(self, path: str) -> list[Document]:
        return find_files(path, (self.text, self.label), self.encoding)

    def _read_examples(self, path: str) -> list[Example]:
        return read_examples(path, text=self.text, label=self.label, encoding=self.encoding)

    def _labels_of(self, example: Example) -> tuple[str, ...]:
        return (example.label,)

    def _encode(self, split: str, examples: list[tuple[Example, NDArray[np.int32]]]) -> LabelledRows:
        texts: list[NDArray[np.int32]] = []
        classes: list[int] = []
        places: list[str] = []
        for example, ids in examples:
            of_label = class_at(example.place, example.label, self._class_of)
            fitting = self._fit(split, example.place, ids, room=self.max_len)
            if fitting is not None:
                texts += fitting
                classes.append(of_label)
                places.append(example.place)
        return LabelledRows(texts, classes, places, self.tokenizer.pad_id)

    def _identity(self) -> dict[str, int | str]:
        return {**super()._identity(), "columns": f"{self.text}, {self.label}"}
