"""Token files on disk, built once for each text and settings, and memory-mapped afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

from seqlab_data.base import tokenizer_digest
from seqlab_data.begun import BegunFiles
from seqlab_data.cache import MakeTokenizer, cached_tokens
from seqlab_data.corpus import Corpus, Share
from seqlab_data.encoding import BLOCK, TextBlock, dtype_of, encode_all
from seqlab_data.progress import CharsRead
from seqlab_data.reading import Document
from seqlab_data.splits import SPLITS
from seqlab_data.tokenizers import Tokenizer
from seqlab_data.tokenizers.pieces import recut
from seqlab_data.word_order import shuffled_lines

FORMAT = 2
"""Format version. Raise it when the tokens of the same text and settings change, so that old caches are not used."""


@dataclass(frozen=True)
class TokenFile:
    """One split's tokens on disk, little-endian and headless.

    Attributes:
        num_tokens: number of tokens, including the bos before each document.
        num_chars: number of characters of text.
        begins: file and line where the split begins.
    """

    split: str
    path: str
    dtype: str
    num_tokens: int
    num_chars: int
    begins: str


@dataclass(frozen=True)
class TokenCache:
    """The tokens of a text: digest of the content, tokenizer, and one file per split."""

    digest: str
    tokenizer: Tokenizer
    splits: dict[str, TokenFile]


def open_token_cache(
    documents: Sequence[Document],
    fractions: Sequence[float],
    make_tokenizer: Callable[[str], Tokenizer],
    root: str | Path | None = None,
    apart: Mapping[str, Sequence[Document]] | None = None,
    processes: int = 0,
    shuffle: int | None = None,
) -> TokenCache:
    """Opens the cache of these documents and settings, building it if it is missing or damaged.

    The concatenated text is cut by `fractions` into train, val and test before anything is tokenized; the
    tokenizer learns from train alone. In each split, every document is preceded by bos, including one that began in
    the previous split. Any number of processes may call this concurrently.

    Args:
        root: root folder of the caches; None = `$SEQLAB_CACHE`, or `seqlab` in `$XDG_CACHE_HOME` or `~/.cache`.
        apart: separate documents of val or test; the remaining splits divide the text in proportion to `fractions`.
        processes: number of worker processes that encode the text; 0 = encode in this process.
        shuffle: seed for shuffling the words of each line, after splitting and tokenizer training; None = no shuffling.

    Raises:
        ValueError: a document is empty or not in its encoding, or the tokenizer cannot learn from it.
        OSError: a file cannot be read or written.
    """
    return open_corpus(Corpus(documents, fractions, apart or {}, root), make_tokenizer, root, processes, shuffle)


def open_mixture(
    corpora: Mapping[str, Sequence[Document]],
    fractions: Sequence[float],
    make_tokenizer: Callable[[str], Tokenizer],
    root: str | Path | None = None,
    processes: int = 0,
    shuffle: int | None = None,
) -> dict[str, TokenCache]:
    """Cache of each corpus, with one tokenizer that learns from the train splits of all corpora, in order; otherwise
    as `open_token_cache`."""
    cut = {name: Corpus(documents, fractions, {}, root) for name, documents in corpora.items()}
    _, tokenizer = cached_tokens(
        ["tokenizer", FORMAT, [corpus.digest for corpus in cut.values()], list(fractions)],
        make_tokenizer,
        lambda: chain.from_iterable(corpus.train() for corpus in cut.values()),
        lambda folder, tokenizer: None,
        root,
    )
    return {name: open_corpus(corpus, tokenizer, root, processes, shuffle) for name, corpus in cut.items()}


def open_corpus(
    corpus: Corpus,
    make_tokenizer: MakeTokenizer,
    root: str | Path | None = None,
    processes: int = 0,
    shuffle: int | None = None,
) -> TokenCache:
    """Opens the cache of a corpus, as `open_token_cache` does."""
    shuffled = [] if shuffle is None else ["words shuffled", shuffle]
    folder, tokenizer = cached_tokens(
        [FORMAT, corpus.digest, list(corpus.fractions), *shuffled],
        make_tokenizer,
        corpus.train,
        lambda folder, tokenizer: _make(folder, corpus, tokenizer, processes, shuffle),
        root,
    )
    described = json.loads((folder / "splits.json").read_text())
    splits = {}
    for name in SPLITS:
        begins = corpus.place(*described[name].pop("begins"))
        splits[name] = TokenFile(name, str(folder / f"{name}.bin"), begins=begins, **described[name])
    return TokenCache(corpus.digest, tokenizer, splits)


def _make(folder: Path, corpus: Corpus, tokenizer: Tokenizer, processes: int, shuffle: int | None) -> None:
    dtype, num_chars = dtype_of(tokenizer), corpus.num_chars
    begins = {"train": Share("train", 0, 1)}
    begun = BegunFiles(folder.with_suffix(".begun"), dtype, tokenizer_digest(tokenizer))
    with begun, CharsRead("encoding text", sum(num_chars.values())) as bar:
        blocks = _blocks(corpus, tokenizer, begins, shuffle)
        done = sum(block.num_chars for block in islice(blocks, begun.blocks))
        if done != begun.chars:  # the same text, stored differently, is divided into different blocks
            begun.begin_anew()
            blocks, done = _blocks(corpus, tokenizer, begins, shuffle), 0
        bar.add(done)
        for block, ids in encode_all(tokenizer, blocks, processes):
            begun.add(block.split, ids, block.num_chars)
            bar.add(block.num_chars)
    begun.move(folder)
    splits = {}
    for name in SPLITS:
        amounts = {"num_tokens": begun.tokens[name], "num_chars": num_chars[name]}
        splits[name] = {"dtype": dtype, **amounts, "begins": [begins[name].document, begins[name].line]}
    (folder / "splits.json").write_text(json.dumps(splits))


def _blocks(
    corpus: Corpus, tokenizer: Tokenizer, begins: dict[str, Share], shuffle: int | None = None
) -> Iterator[TextBlock]:
    """The text in blocks; records the start of each split in `begins`."""
    split, texts, size = "", list[tuple[bool, str]](), 0
    for share, pieces in groupby(corpus.shares(), key=itemgetter(0)):
        begins.setdefault(share.split, share)
        read: Iterator[str] = (text for _, text in pieces)
        first = True
        if shuffle is not None:
            read = shuffled_lines(read, shuffle, SPLITS.index(share.split), share.document)
        for text in recut(read, tokenizer.cut):
            if texts and (share.split != split or size >= BLOCK):
                yield TextBlock(split, texts)
                texts, size = [], 0
            split = share.split
            texts.append((first, text))
            size += len(text)
            first = False
    if texts:
        yield TextBlock(split, texts)
