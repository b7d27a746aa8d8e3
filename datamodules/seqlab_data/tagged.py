"""Tagged text for sequence labelling: a LightningDataModule.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.annotated import AnnotatedDataModule, class_at
from seqlab_data.batch_order import row_numbers
from seqlab_data.buckets import pad, pad_mask
from seqlab_data.conll_source import TaggedSentence, find_file, read_tagged
from seqlab_data.text_source import Document
from seqlab_data.tokenizers import StoredTokenizer, WordTokenizer


class TaggedRows:
    """Tokenized sentences and the classes of their tokens' tags.

    Args:
        texts: the ids of each, one a word.
        tags: the classes of each, as many.
        places: of each its file and first line.
    """

    def __init__(
        self,
        texts: list[NDArray[np.int32]],
        tags: list[NDArray[np.int32]],
        places: Sequence[str],
        pad_id: int,
    ) -> None:
        self.texts = texts
        self.tags = tags
        self.places = places
        self.pad_id = pad_id
        self.lengths = np.array([len(text) for text in texts], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The sentences with these indices, (B,). With none, one sentence whose tags are ignored."""
        wanted = indices if len(indices) else np.zeros(1, dtype=np.int64)
        texts = [self.texts[i] for i in wanted]
        targets = pad([self.tags[i] for i in wanted], IGNORE)
        if not len(indices):
            targets.fill_(IGNORE)
        return LabelledBatch(pad(texts, self.pad_id), pad_mask(texts), targets, row_numbers(indices))


class TaggedTextDataModule(AnnotatedDataModule[TaggedSentence, TaggedRows]):
    """Sentences with a tag for each word, in CoNLL's columns. docs/data.md has the guarantees.

    Args:
        train, val, test: a file of lines `token ... tag` each, a blank line after each sentence; a `.jsonl` file; or a
            Hugging Face dataset, `hf:NAME_OR_FOLDER@SPLIT`.
        split: shares of train, val and test in `train`, where it is divided by a hash of the sentence: a split that
            has a path of its own takes none of it.
        columns: of tokens and of tags, where they have names.
        encoding: of the files' text.
        tokenizer: makes the tokenizer from the train split's sentences.
        max_len: the most words of a sentence.
        on_long: what becomes of a longer one: "refuse" the data, "drop" the sentence, "cut" its end.
        max_tokens: of a batch on each rank, padded: its sentences x its longest.
        seed: of the order of the training batches.
        num_workers: processes that load batches; 0 = the training process itself.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    kind = "tagged"

    def __init__(
        self,
        train: str,
        *,
        columns: tuple[str, str] = ("tokens", "tags"),
        tokenizer: Callable[[str], WordTokenizer | StoredTokenizer] = WordTokenizer,
        **options: Any,
    ) -> None:
        super().__init__(train, tokenizer=tokenizer, **options)
        self.columns = columns

    def _files(self, path: str) -> list[Document]:
        return [find_file(path, self.columns, self.encoding)]

    def _read_examples(self, path: str) -> list[TaggedSentence]:
        return read_tagged(path, self.columns, self.encoding)

    def _labels_of(self, example: TaggedSentence) -> tuple[str, ...]:
        return example.tags

    def _encode(self, split: str, examples: list[tuple[TaggedSentence, NDArray[np.int32]]]) -> TaggedRows:
        texts: list[NDArray[np.int32]] = []
        tags: list[NDArray[np.int32]] = []
        places: list[str] = []
        for sentence, ids in examples:
            check_words(sentence)
            classes = [class_at(sentence.place(k), tag, self._class_of) for k, tag in enumerate(sentence.tags)]
            row = self._fit(split, sentence.place(), ids, np.array(classes, dtype=np.int32), room=self.max_len)
            if row is not None:
                texts.append(row[0])
                tags.append(row[1])
                places.append(sentence.place())
        return TaggedRows(texts, tags, places, self.tokenizer.pad_id)

    def _identity(self) -> dict[str, int | str]:
        return {**super()._identity(), "columns": ", ".join(self.columns)}


def check_words(sentence: TaggedSentence) -> None:
    """Refuses a sentence whose words are not one token each.

    Raises:
        ValueError: a word has whitespace in it, and would be none or several.
    """
    for k, word in enumerate(sentence.words):
        if word.split() != [word]:
            raise ValueError(
                f"{sentence.place(k)} has the token {word!r}, in which there is whitespace; a tag is of one word"
            )
