"""Every reader of text, each with a plain file."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.trained.word_vectors import read_word_vectors
from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TaggedTextDataModule, TextDataModule
from seqlab_data.documents import find_documents
from seqlab_data.tokenizers import ByteTokenizer, WordTokenizer

TEXTS = ["a café film", "so dull", "warm"]
LABELS = ["pos", "neg", "pos"]


class Reader(NamedTuple):
    """A reader, with the name and the content of a plain file; its first text has the words "café film" in it.

    It reads the rows, and what identifies and describes the data."""

    file: str
    plain: str
    read: Callable[[Path, str], tuple[Any, Any]]


def told(data: Any) -> Any:
    data.setup("fit")
    return data.identity(), data.describe() | {"source": ""}


def labelled(path: Path, encoding: str) -> tuple[Any, Any]:
    data = LabelledTextDataModule(str(path), val=str(path), test=str(path), encoding=encoding)
    data.setup("fit")
    return [(one.text, one.label) for one in data._examples["train"]], told(data)


def of_a_folder(path: Path, encoding: str) -> tuple[Any, Any]:
    path.with_name("good.txt").write_text("a word\n", encoding)
    return labelled(path.parent, encoding)


def tagged(path: Path, encoding: str) -> tuple[Any, Any]:
    data = TaggedTextDataModule(str(path), val=str(path), test=str(path), encoding=encoding)
    data.setup("fit")
    return [(one.words, one.tags) for one in data._examples["train"]], told(data)


def pairs(path: Path, encoding: str, *more: str) -> tuple[Any, Any]:
    both = [str(path), *more]
    data = ParallelTextDataModule(both, val=both, encoding=encoding, source_tokenizer=WordTokenizer)
    data.setup("fit")
    return [pair[:2] for pair in data._pairs["train"]], told(data)


def of_two_files(path: Path, encoding: str) -> tuple[Any, Any]:
    other = path.with_name("other.txt")
    other.write_text("eins\nzwei\ndrei\n", encoding)
    return pairs(path, encoding, str(other))


def document(path: Path, encoding: str) -> tuple[Any, Any]:
    options: dict[str, Any] = {"cache_dir": str(path.parent / "cache"), "encoding": encoding, "seq_len": 2}
    data = TextDataModule(str(path), tokenizer=ByteTokenizer, split=(0.4, 0.3, 0.3), **options)
    data.setup("fit")
    return ["".join(texts) for file in find_documents(str(path), data.encoding) for texts in file.documents()], told(
        data
    )


class Everything(Container[str]):
    def __contains__(self, word: object) -> bool:
        return True


def vectors(path: Path, encoding: str) -> tuple[Any, Any]:
    return [(word, vector.tolist()) for word, vector in read_word_vectors(str(path), Everything(), 2).items()], None


def rows(divider: str, *columns: list[str]) -> str:
    return "".join(divider.join(row) + "\n" for row in zip(*columns, strict=True))


def objects(**columns: list[Any]) -> str:
    found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)


def conll_u(words: list[str], tags: list[str]) -> str:
    found = [f"{k}\t{word}\t_\t{tags[k - 1]}\t_\t_\t0\t_\t_\tSpaceAfter=No\n" for k, word in enumerate(words, start=1)]
    return f"# text = {' '.join(words)}\n{''.join(found)}"


WORDS = [text.split() for text in TEXTS]
TAGS = [["DET" if len(word) < 3 else "NOUN" for word in words] for words in WORDS]
SENTENCES = [*zip(WORDS, TAGS, strict=True)]
READERS = {
    "a document": Reader("x.txt", rows("", TEXTS), document),
    "documents, JSON": Reader("x.jsonl", objects(text=TEXTS), document),
    "labels, space": Reader("x.txt", rows(" ", LABELS, TEXTS), labelled),
    "labels, TAB": Reader("x.txt", rows("\t", LABELS, TEXTS), labelled),
    "labels, CSV": Reader("x.csv", rows(",", ["text", *TEXTS], ["label", *LABELS]), labelled),
    "labels, TSV": Reader("x.tsv", rows("\t", ["text", *TEXTS], ["label", *LABELS]), labelled),
    "labels, JSON": Reader("x.jsonl", objects(text=TEXTS, label=LABELS), labelled),
    "labels, folder": Reader("bäd.txt", rows("", TEXTS), of_a_folder),
    "tags": Reader("x.conll", "\n".join(rows("\t", *sentence) for sentence in SENTENCES), tagged),
    "tags, CoNLL-U": Reader("x.conllu", "\n".join(conll_u(*sentence) for sentence in SENTENCES), tagged),
    "tags, JSON": Reader("x.jsonl", objects(tokens=WORDS, tags=TAGS), tagged),
    "pairs": Reader("x.tsv", rows("\t", TEXTS, ["ins"] * 3), pairs),
    "pairs, two files": Reader("x.txt", rows("", TEXTS), of_two_files),
    "pairs, JSON": Reader("x.jsonl", objects(source=TEXTS, target=TEXTS[::-1]), pairs),
    "word vectors": Reader("x.vec", "film 1 2\ncafé 3 4\n", vectors),
}
JSON = [name for name in READERS if name.endswith("JSON")]
TOKENS = [name for name in READERS if name.startswith("tags")]
CLASSES = [name for name in READERS if name.startswith(("labels", "tags")) and name != "labels, folder"]
