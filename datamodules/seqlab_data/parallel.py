"""Pairs of texts for translation and similar tasks: a LightningDataModule.

B batch, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, PairBatch
from seqlab_data.base import tokenizer_digest
from seqlab_data.batches import pad, pad_mask
from seqlab_data.cache import EncodedTexts, encode_texts
from seqlab_data.documents import check_encoding, content_digest, source_name
from seqlab_data.pairs import COLUMNS, DATES, Pair, dates, pairs_in, read_sides
from seqlab_data.reading import UTF_8
from seqlab_data.sentences import SentenceDataModule
from seqlab_data.splits import check_filled, given_splits, split_examples
from seqlab_data.tokenizers import SubwordTokenizer, Tokenizer
from seqlab_data.word_order import WordOrder, check_word_order, digest_in_order, in_order


class PairRows:
    """Tokenized pairs of a source and a target.

    Args:
        sources, targets: ids of each source, (S,), and target, (T,), without special tokens.
        pairs: the texts that these ids encode.
        source_tokenizer, target_tokenizer: tokenizers whose special tokens are added.
    """

    def __init__(
        self,
        sources: Sequence[NDArray[np.int32]],
        targets: Sequence[NDArray[np.int32]],
        pairs: Sequence[Pair],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        self.sources = [np.append(ids, np.int32(source_tokenizer.eos_id)) for ids in sources]
        self.targets = [np.append(ids, np.int32(target_tokenizer.eos_id)) for ids in targets]
        self.references = [list(pair.references) for pair in pairs]
        self.places = [pair.place for pair in pairs]
        self.bos_id = np.int32(target_tokenizer.bos_id)
        self.pad_ids = source_tokenizer.pad_id, target_tokenizer.pad_id
        self.lengths = np.array(
            [max(len(source), len(target)) for source, target in zip(self.sources, self.targets, strict=True)],
            dtype=np.int64,
        )

    def __len__(self) -> int:
        return len(self.sources)

    def read(self, indices: NDArray[np.int64], /) -> PairBatch:
        """The pairs with these indices, (B,): sources (B, S) and targets (B, T), each ending in eos."""
        sources = [self.sources[i] for i in indices]
        targets = [self.targets[i] for i in indices]
        source_pad, target_pad = self.pad_ids
        return PairBatch(
            source=pad(sources, source_pad),
            source_mask=pad_mask(sources),
            # The decoder reads bos and the target: its predictions shifted by one position.
            tokens=pad([np.append(self.bos_id, target[:-1]) for target in targets], target_pad),
            targets=pad(targets, IGNORE),
            rows=torch.tensor(indices),
        )


class ParallelTextDataModule(SentenceDataModule[PairBatch, PairRows]):
    """Pairs of a source text and a target text. docs/data.md has the guarantees.

    Args:
        train, val, test: file of `source<TAB>target[<TAB>more references]` lines, or a source file and a target file,
            as a list or separated by a comma, or a `.jsonl` file or a Hugging Face dataset,
            `hf:NAME_OR_FOLDER@SPLIT`; all None = dates in many languages.
        val_share: fraction of `train` split off by a hash of the source when `val` is not given.
        columns: names of the source and target columns, such as translation.de, in data with named columns.
        encoding: text encoding of the files.
        source_tokenizer, target_tokenizer: factories that build the tokenizers from the train split's sources and
            targets; without the second, the first builds one shared tokenizer from both.
        word_order: "natural", or "shuffled": the words of each source in an order determined by `seed` and the row.
        max_len: maximum length of a source or a target, in tokens, eos included.
        max_tokens: maximum number of tokens in a padded batch on each rank: pairs x longest source or target.
        options: arguments of `SentenceDataModule`.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, a file is invalid.
    """

    in_evaluation = ("tokenizer",)

    def __init__(
        self,
        train: str | list[str] | None = None,
        *,
        val: str | list[str] | None = None,
        test: str | list[str] | None = None,
        val_share: float = 0.05,
        columns: tuple[str, str] = COLUMNS,
        encoding: str = UTF_8,
        source_tokenizer: Callable[[str], Tokenizer] = SubwordTokenizer,
        target_tokenizer: Callable[[str], Tokenizer] | None = None,
        word_order: WordOrder = "natural",
        max_len: int = 128,
        max_tokens: int = 4096,
        **options: Any,
    ) -> None:
        super().__init__(max_len=max_len, max_tokens=max_tokens, **options)
        self.paths = given_splits(train=train, val=val, test=test)
        if self.paths and train is None:
            raise ValueError("data.train must name a file if data.val or data.test does")
        if not 0 < val_share < 1:
            raise ValueError(f"data.val_share must be between 0 and 1, got {val_share}")
        self.val_share = val_share
        self.encoding = check_encoding(encoding)
        self.columns = columns
        self.word_order = check_word_order(word_order)
        self.make_source_tokenizer = source_tokenizer
        self.make_target_tokenizer = target_tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._encoded[0].tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the targets, which decodes generated text."""
        return self._encoded[1].tokenizer

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the sources."""
        return self.source_tokenizer.vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def references(self, split: str) -> list[list[str]]:
        """Acceptable targets of each row of a split, as in the file; indexed by `PairBatch.rows`."""
        return self._rows[split].references

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record. Token counts include eos."""
        splits = {
            name: {
                "pairs": len(rows),
                "source_tokens": sum(map(len, rows.sources)),
                "target_tokens": sum(map(len, rows.targets)),
            }
            for name, rows in self._rows.items()
        }
        return {
            "name": "parallel",
            "source": source_name(self.paths["train"]) if self.paths else "dates of Unicode's CLDR",
            "digest": self._digest,
            "splits": splits,
            "dropped": self.dropped,
            "source_tokenizer": type(self.source_tokenizer).__name__,
            "tokenizer": type(self.tokenizer).__name__,
            "vocab_size": self.vocab_size,
            "target_vocab_size": self.target_vocab_size,
        }

    @cached_property
    def _found(self) -> tuple[dict[str, list[Pair]], str]:
        """The pairs of each split that has a path, and the digest of all that was read."""
        files = {split: read_sides(path, self.columns, self.encoding) for split, path in self.paths.items()}
        if not self.paths:
            files = {split: [dates(split)] for split in DATES}
        digest = content_digest(file.content for some in files.values() for file in some)
        return {split: pairs_in(some, self.columns) for split, some in files.items()}, digest

    @property
    def _digest(self) -> str:
        return digest_in_order(self._found[1], self.word_order)

    @cached_property
    def _pairs(self) -> dict[str, list[Pair]]:
        read, _ = self._found
        shares = {"train": 1 - self.val_share, "val": self.val_share}
        if "val" in read:
            return read
        divided = {**read, **split_examples(read["train"], shares)}
        check_filled(divided, source_name(self.paths["train"]), "pair", self.paths)
        return divided

    @cached_property
    def _encoded(self) -> tuple[EncodedTexts, EncodedTexts]:
        """The sources and the targets of all splits, by the names SPLIT.source and SPLIT.target."""
        given = {split: [pair.source for pair in some] for split, some in self._pairs.items()}
        read = in_order(given, self.word_order, self.seed)
        sources = {f"{split}.source": some for split, some in read.items()}
        targets = {f"{split}.target": [pair.target for pair in some] for split, some in self._pairs.items()}
        train_sources, train_targets = given["train"], targets["train.target"]
        if self.make_target_tokenizer is None:
            joint = encode_texts(sources | targets, [*train_sources, *train_targets], self.make_source_tokenizer)
            return joint, joint
        return (
            encode_texts(sources, train_sources, self.make_source_tokenizer),
            encode_texts(targets, train_targets, self.make_target_tokenizer),
        )

    def _read(self) -> dict[str, PairRows]:
        return {split: self._encode(split, pairs) for split, pairs in self._pairs.items()}

    def _encode(self, split: str, pairs: list[Pair]) -> PairRows:
        sources, targets = (
            encoded.ids[f"{split}.{side}"] for encoded, side in zip(self._encoded, ("source", "target"), strict=True)
        )
        kept = [
            (fitting, pair)
            for pair, source, target in zip(pairs, sources, targets, strict=True)
            if (fitting := self._fit(split, pair.place, source, target, room=self.max_len - 1)) is not None
        ]
        sources, targets = ([fitting[side] for fitting, _ in kept] for side in (0, 1))
        return PairRows(sources, targets, [pair for _, pair in kept], self.source_tokenizer, self.tokenizer)

    def identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "columns": ", ".join(self.columns),
            **({} if "val" in self._found[0] else {"val_share": str(self.val_share)}),
            "tokenizer": tokenizer_digest(self.source_tokenizer, self.tokenizer),
            **super().identity(),
        }
