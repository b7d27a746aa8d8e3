"""Text for language modelling: a LightningDataModule over windows of a token stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqlab.batch import TokenBatch
from seqlab_data.base import SequenceDataModule, check_at_least, tokenizer_digest
from seqlab_data.batches import EpochOrder, Groups
from seqlab_data.document_rows import DocumentRows
from seqlab_data.documents import check_encoding, content_digest, find_documents, source_name
from seqlab_data.mixture import JoinedWindows, check_mixture, mixed_order
from seqlab_data.packed_rows import PackedRows
from seqlab_data.reading import UTF_8
from seqlab_data.splits import SPLITS, check_split, given_splits
from seqlab_data.token_cache import TokenCache, open_mixture, open_token_cache
from seqlab_data.tokenizers import CharTokenizer, Tokenizer
from seqlab_data.windows import TextCounts, Windows
from seqlab_data.word_order import WordOrder, check_word_order, digest_in_order

OF = {"documents": "one document", "packed": "whole documents"}
"""Content of a row's `seq_len` tokens."""


class TextDataModule(SequenceDataModule[TokenBatch]):
    """Any text, cut into train, val and test and packed into windows, with no token lost.

    docs/data.md has the guarantees.

    Args:
        path: file, glob or folder, or a list of them, to be split; None = CPython's documentation. With a mixture, a
            mapping from corpus name to paths.
        mixture: share of each corpus in the training windows of an epoch; the shares sum to 1.
        train, val, test: paths of each split, instead of `path`; a split without a path is cut from train.
        encoding: text encoding of the files.
        tokenizer: factory that builds the tokenizer from the train split's text.
        seq_len: window length in tokens.
        batch_size: windows per batch on each rank.
        split: fractions of the text, in characters and in order, used as train, val and test.
        packing: "stream" = windows cut from the concatenated documents; "documents" = rows with one document each (at
            most `seq_len` tokens of it), in batches of similar length and equal token count, padding included; "packed"
            = rows of several documents, each of which the model reads alone.
        word_order: "natural", or "shuffled": the words of each line, in all splits, in an order determined by `seed`
            and the position of the line.
        seed: random seed for the order of the training windows.
        num_workers: number of processes that tokenize text and load batches; 0 = use the training process.
        cache_dir: folder of the token caches; None = `$SEQLAB_CACHE`, or `seqlab` in the user's cache folder.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, the text is invalid.
    """

    in_evaluation = ("tokenizer",)
    between_epochs = ("batch_size",)

    def __init__(
        self,
        path: str | list[str] | dict[str, str | list[str]] | None = None,
        *,
        mixture: dict[str, float] | None = None,
        train: str | list[str] | None = None,
        val: str | list[str] | None = None,
        test: str | list[str] | None = None,
        encoding: str = UTF_8,
        tokenizer: Callable[[str], Tokenizer] = CharTokenizer,
        seq_len: int = 128,
        batch_size: int = 32,
        split: tuple[float, float, float] = (0.9, 0.05, 0.05),
        packing: Literal["stream", "documents", "packed"] = "stream",
        word_order: WordOrder = "natural",
        seed: int = 0,
        num_workers: int = 0,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers, batch_size=batch_size)
        check_at_least(1, seq_len=seq_len)
        check_split(split)
        if packing not in ("stream", "documents", "packed"):
            raise ValueError(f"data.packing must be stream, documents or packed, got {packing}")
        if train is None and (val, test) != (None, None):
            raise ValueError("data.val and data.test need data.train; a data.path alone is cut into all three splits")
        if train is not None and path is not None:
            raise ValueError(
                f"data.path {path} and data.train {train} are both given; give one of them, since a path is cut "
                "into all splits"
            )
        check_mixture(path, mixture)
        if mixture is not None and packing != "stream":
            raise ValueError(f"data.packing {packing} takes one corpus, without a data.mixture")
        self.path = path if train is None else train
        self.mixture = mixture
        self.apart = given_splits(val=val, test=test)
        self.encoding = check_encoding(encoding)
        self.make_tokenizer = tokenizer
        self.seq_len = seq_len
        self.split = tuple(split)
        self.packing = packing
        self.word_order = check_word_order(word_order)
        self.cache_dir = cache_dir
        self._groups = Groups()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._caches[0].tokenizer

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record. `tokens` counts predicted tokens, `chars` their characters."""
        splits = {name: {"tokens": 0, "chars": 0} for name in SPLITS}
        for name, file in (one for cache in self._caches for one in cache.splits.items()):
            splits[name]["tokens"] += file.num_tokens - 1
            splits[name]["chars"] += file.num_chars
        return {
            "name": "text",
            "source": source_name(self.path),
            "digest": self._digest,
            "splits": splits,
            "tokenizer": type(self.tokenizer).__name__,
            "vocab_size": self.vocab_size,
        }

    def setup(self, stage: str) -> None:
        """Reads or builds the token cache.

        Raises:
            ValueError: the text is invalid; the message names the file and line.
        """
        super().setup(stage)
        for split in SPLITS:
            self.rows(split)

    @cached_property
    def _caches(self) -> list[TokenCache]:
        """Token cache of each corpus."""
        shuffle = self.seed if self.word_order == "shuffled" else None
        if isinstance(self.path, dict):
            corpora = {name: find_documents(path, self.encoding) for name, path in self.path.items()}
            caches = open_mixture(corpora, self.split, self.make_tokenizer, self.cache_dir, self.num_workers, shuffle)
            return [*caches.values()]
        documents = find_documents(self.path, self.encoding)
        apart = {split: find_documents(path, self.encoding) for split, path in self.apart.items()}
        make, processes = self.make_tokenizer, self.num_workers
        return [open_token_cache(documents, self.split, make, self.cache_dir, apart, processes, shuffle)]

    @property
    def _digest(self) -> str:
        digests = [cache.digest for cache in self._caches]
        digest = digests[0] if self.mixture is None else content_digest(one.encode() for one in digests)
        return digest_in_order(digest, self.word_order)

    @cached_property
    def _counts(self) -> TextCounts:
        return TextCounts(self.tokenizer.token_bytes)

    def rows(self, split: str) -> Windows | JoinedWindows | DocumentRows | PackedRows:
        if self.packing == "documents":
            return self._documents[split]
        if self.packing == "packed":
            return self._packed[split]
        windows = [Windows(cache.splits[split], self.seq_len, self._counts) for cache in self._caches]
        return windows[0] if self.mixture is None else JoinedWindows(windows)

    def order(self, split: str) -> EpochOrder:
        rows = self.rows(split)
        if self.mixture is None or not isinstance(rows, JoinedWindows) or not isinstance(self.path, dict):
            return super().order(split)
        return partial(mixed_order, [len(part) for part in rows.parts], [self.mixture[name] for name in self.path])

    @cached_property
    def _documents(self) -> dict[str, DocumentRows]:
        splits = self._caches[0].splits.items()
        return {name: DocumentRows(file, self.seq_len, self._counts, self.tokenizer) for name, file in splits}

    @cached_property
    def _packed(self) -> dict[str, PackedRows]:
        return {name: PackedRows(pieces, self.seq_len) for name, pieces in self._documents.items()}

    def groups(self, split: str) -> list[NDArray[np.int64]] | None:
        if self.packing != "documents":
            return None
        return self._groups.of(split, self._documents[split].lengths, self.batch_size * self.seq_len)

    def identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            **({"mixture": json.dumps(self.mixture)} if self.mixture else {}),
            "split": ", ".join(map(str, self.split)),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "seq_len": f"{self.seq_len} of {OF[self.packing]}" if self.packing in OF else self.seq_len,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }
