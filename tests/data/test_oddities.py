"""Every reader meets every oddity of a file: it reads what it reads of the plain file, or refuses in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from seqlab.trained.word_vectors import read_word_vectors
from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TaggedTextDataModule, TextDataModule
from seqlab_data.arrays import read_images, read_table
from seqlab_data.documents import find_documents
from seqlab_data.tokenizers import ByteTokenizer, WordTokenizer

TEXTS = ["a café film", "so dull", "warm"]
LABELS = ["pos", "neg", "pos"]


class Reader(NamedTuple):
    """A reader, with the name and the content of a plain file; its first text has the word "film" in it."""

    file: str
    plain: str
    read: Callable[[Path, str], Any]


def labelled(path: Path, encoding: str) -> Any:
    data = LabelledTextDataModule(str(path), val=str(path), test=str(path), encoding=encoding)
    data.setup("fit")
    return [(one.text, one.label) for one in data._examples["train"]]


def of_a_folder(path: Path, encoding: str) -> Any:
    other = path.parent / "good.txt"
    other.write_text("a café\n", encoding)
    return labelled(path.parent, encoding)


def tagged(path: Path, encoding: str) -> Any:
    data = TaggedTextDataModule(str(path), val=str(path), test=str(path), encoding=encoding)
    data.setup("fit")
    return [(one.words, one.tags) for one in data._examples["train"]]


def pairs(path: Path, encoding: str, *more: str) -> Any:
    both = [str(path), *more]
    data = ParallelTextDataModule(both, val=both, encoding=encoding, source_tokenizer=WordTokenizer)
    data.setup("fit")
    return [pair[:2] for pair in data._pairs["train"]]


def of_two_files(path: Path, encoding: str) -> Any:
    other = path.parent / "other.txt"
    other.write_text("eins\nzwei\ndrei\n", encoding)
    return pairs(path, encoding, str(other))


def document(path: Path, encoding: str) -> Any:
    options: dict[str, Any] = {"cache_dir": str(path.parent / "cache"), "encoding": encoding, "seq_len": 2}
    TextDataModule(str(path), tokenizer=ByteTokenizer, split=(0.4, 0.3, 0.3), **options).setup("fit")
    return ["".join(texts) for file in find_documents(str(path), encoding) for texts in file.documents()]


class Everything(Container[str]):
    def __contains__(self, word: object) -> bool:
        return True


def vectors(path: Path, encoding: str) -> Any:
    if encoding != "utf-8":
        raise ValueError(f"{path}: not read in another encoding; save it as UTF-8")
    return [(word, vector.tolist()) for word, vector in read_word_vectors(str(path), Everything(), 2).items()]


def table(divider: str) -> str:
    return "".join(f"{text}{divider}{label}\n" for text, label in [("text", "label"), *zip(TEXTS, LABELS, strict=True)])


def objects(**columns: list[Any]) -> str:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


WORDS = [text.split() for text in TEXTS]
TAGS = [["DET" if len(word) < 3 else "NOUN" for word in words] for words in WORDS]
CONLL = "\n".join(
    "".join(f"{word}\t{tag}\n" for word, tag in zip(*sentence, strict=True))
    for sentence in zip(WORDS, TAGS, strict=True)
)
CONLL_U = "\n".join(
    f"# text = {' '.join(words)}\n"
    + "".join(
        f"{k}\t{words[k - 1]}\t_\t{tags[k - 1]}\t_\t_\t0\t_\t_\tSpaceAfter=No\n" for k in range(1, len(words) + 1)
    )
    for words, tags in zip(WORDS, TAGS, strict=True)
)
READERS = {
    "a document": Reader("x.txt", "".join(f"{text}\n" for text in TEXTS), document),
    "documents, JSON": Reader("x.jsonl", objects(text=TEXTS), document),
    "labels, space": Reader(
        "x.txt", "".join(f"{label} {text}\n" for text, label in zip(TEXTS, LABELS, strict=True)), labelled
    ),
    "labels, TAB": Reader(
        "x.txt", "".join(f"{label}\t{text}\n" for text, label in zip(TEXTS, LABELS, strict=True)), labelled
    ),
    "labels, CSV": Reader("x.csv", table(","), labelled),
    "labels, TSV": Reader("x.tsv", table("\t"), labelled),
    "labels, JSON": Reader("x.jsonl", objects(text=TEXTS, label=LABELS), labelled),
    "labels, folder": Reader("bad.txt", "".join(f"{text}\n" for text in TEXTS), of_a_folder),
    "tags": Reader("x.conll", CONLL, tagged),
    "tags, CoNLL-U": Reader("x.conllu", CONLL_U, tagged),
    "tags, JSON": Reader("x.jsonl", objects(tokens=WORDS, tags=TAGS), tagged),
    "pairs": Reader("x.tsv", "".join(f"{text}\tins\n" for text in TEXTS), pairs),
    "pairs, two files": Reader("x.txt", "".join(f"{text}\n" for text in TEXTS), of_two_files),
    "pairs, JSON": Reader("x.jsonl", objects(source=TEXTS, target=TEXTS[::-1]), pairs),
    "word vectors": Reader("x.vec", "film 1 2\ncafé 3 4\n", vectors),
}
JSON = [name for name in READERS if name.endswith("JSON")]
TOKENS = [name for name in READERS if name.startswith("tags")]
CLASSES = [name for name in READERS if name.startswith(("labels", "tags")) and name != "labels, folder"]
SAME: dict[str, Callable[[str], bytes]] = {
    "byte-order mark": lambda text: f"\ufeff{text}".encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "byte-order mark and CRLF": lambda text: f"\ufeff{text}".replace("\n", "\r\n").encode(),
    "one CRLF": lambda text: text.replace("\n", "\r\n", 1).encode(),
    "no last line end": lambda text: text.rstrip("\n").encode(),
}
"""Variants that read the same as the plain file."""


def archive(text: str) -> bytes:
    np.savez(held := io.BytesIO(), text=np.array([text]))
    return held.getvalue()


def parquet_of(text: str) -> bytes:
    parquet.write_table(pa.table({"text": [text]}), held := io.BytesIO())
    return held.getvalue()


REFUSED: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "empty": ("is empty", lambda text: b""),
    "a byte-order mark alone": ("is empty but for", lambda text: b"\xef\xbb\xbf"),
    "line ends alone": ("", lambda text: b"\n\r\n\n"),
    "UTF-16": ("begins with the byte-order mark of UTF-16", lambda text: text.encode("utf-16")),
    "UTF-16 without a mark": ("", lambda text: text.encode("utf-16-le")),
    "UTF-32": ("begins with the byte-order mark of UTF-32", lambda text: text.encode("utf-32")),
    "Latin-1": ("is not UTF-8 text: byte", lambda text: text.encode("latin-1")),
    "a surrogate": (
        "is not UTF-8 text: byte",
        lambda text: text.replace("film", "\ud800").encode(errors="surrogatepass"),
    ),
    "NUL": ("has a NUL character", lambda text: text.replace("film", "fi\0lm").encode()),
    "gzip": ("is compressed by gzip", lambda text: gzip.compress(text.encode())),
    "an archive": ("is a zip archive", archive),
    "Parquet": ("is a Parquet file", parquet_of),
}
"""Part of the error message, and the content that is refused."""
WITHIN = {
    "U+2028": "fi\u2028lm",
    "U+0085": "fi\u0085lm",
    "vertical TAB": "fi\vlm",
    "file separator": "fi\x1clm",
    "no-break space": "fi\u00a0lm",
    "a byte-order mark": "fi\ufefflm",
    "an escape": "fi\\u2028lm",
    "an escaped surrogate": "fi\\ud800lm",
    "a carriage return": "fi\rlm",
    "a quote": 'fi"lm',
    "a first quote": '"film',
    "quotes": '"film"',
    "1 MB": "film" * 250_000,
}
"""Replacements for the word "film"."""
WHITESPACE = ("U+2028", "U+0085", "vertical TAB", "file separator", "no-break space")
NOT_KEPT = {
    *((name, oddity) for name in TOKENS for oddity in WHITESPACE),  # a token is one word
    ("tags, JSON", "an escape"),
    *((name, "a carriage return") for name in READERS if name != "a document"),
    *((name, oddity) for name in JSON for oddity in ("vertical TAB", "file separator", "an escaped surrogate")),
    *((name, oddity) for name in JSON for oddity in ("a quote", "a first quote", "quotes")),
}


def outcome(name: str, folder: Path, content: bytes, encoding: str = "utf-8") -> Any:
    """Content as read, or the one sentence that refuses it, which names the file and what to do."""
    folder.mkdir()
    path = folder / READERS[name].file
    path.write_bytes(content)
    try:
        return READERS[name].read(path, encoding)
    except ValueError as error:
        said = str(error)
    assert path.name in said and "\n" not in said, f"{name}: {said}"
    assert "; " in said, f"{name}: {said}"
    return said


def replaced(value: Any, new: str) -> Any:
    if isinstance(value, str):
        return value.replace("film", new)
    return type(value)(replaced(one, new) for one in value) if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("plain")
    read = {name: outcome(name, folder / name, reader.plain.encode()) for name, reader in READERS.items()}
    assert all("film" in str(value) and isinstance(value, list) for value in read.values())
    return read


@pytest.mark.parametrize("oddity", SAME)
def test_what_is_no_text_is_not_read(oddity: str, tmp_path: Path, plain: dict[str, Any]) -> None:
    for name, reader in READERS.items():
        read = outcome(name, tmp_path / name, SAME[oddity](reader.plain))
        if (name, oddity) == ("a document", "no last line end"):
            read = [f"{text}\n" for text in read]
        assert read == plain[name], name


@pytest.mark.parametrize("oddity", REFUSED)
def test_what_is_no_text_of_the_encoding_is_refused(oddity: str, tmp_path: Path) -> None:
    says, content = REFUSED[oddity]
    for name, reader in READERS.items():
        said = outcome(name, tmp_path / name, content(reader.plain))
        assert isinstance(said, str) and says in said, f"{name}: {said}"


@pytest.mark.parametrize("oddity", WITHIN)
def test_what_ends_no_line_stays(oddity: str, tmp_path: Path, plain: dict[str, Any]) -> None:
    new = WITHIN[oddity]
    for name, reader in READERS.items():
        read = outcome(name, tmp_path / name, reader.plain.replace("film", new).encode())
        if (name, oddity) in NOT_KEPT:
            assert isinstance(read, str), name
        else:
            meant = json.loads(f'"{new}"') if name in JSON and "\\" in new else new
            assert read == replaced(plain[name], meant), name


def test_carriage_returns_alone_end_no_line(tmp_path: Path, plain: dict[str, Any]) -> None:
    for name, reader in READERS.items():
        read = outcome(name, tmp_path / name, reader.plain.replace("\n", "\r").encode())
        if name == "a document":
            assert read == [text.replace("\n", "\r") for text in plain[name]]
        else:
            assert isinstance(read, str) and "line 1 has a carriage return" in read, name


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-1", "utf-8-sig"])
def test_an_encoding_that_is_named_is_read(encoding: str, tmp_path: Path, plain: dict[str, Any]) -> None:
    for name, reader in READERS.items():
        if name != "word vectors":
            assert outcome(name, tmp_path / name, reader.plain.encode(encoding), encoding) == plain[name], name


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8", "latin-1"), ("utf-16-le", "utf-16"), ("utf-8", "utf-16-le"), ("utf-16", "utf-16-be")],
)
def test_another_encoding_than_the_file_says_is_refused(encoding: str, named: str, tmp_path: Path) -> None:
    mark = "\ufeff" if encoding == "utf-8" else ""
    for name, reader in READERS.items():
        said = outcome(name, tmp_path / name, f"{mark}{reader.plain}".encode(encoding), named)
        assert isinstance(said, str), name


@pytest.mark.parametrize("label", ["p\u2028os", "p\u00a0os", " pos", "pos\u00a0", "\ufeffpos"])
def test_a_label_that_looks_like_another_is_refused(label: str, tmp_path: Path) -> None:
    for name in CLASSES:
        old = "DET" if name in TOKENS else "pos"
        content = READERS[name].plain.replace(old, label)
        said = outcome(name, tmp_path / name, content.encode())
        spaces = name in ("tags", "tags, CoNLL-U", "labels, space") and label == " pos"  # which separates columns
        mark = name in ("labels, space", "labels, TAB") and label == "\ufeffpos"  # of a file that begins
        assert isinstance(said, str) or spaces or mark, f"{name}: {said}"


def test_one_class_is_refused(tmp_path: Path) -> None:
    for name in CLASSES:
        content = READERS[name].plain.replace("neg", "pos").replace("DET", "NOUN")
        assert "has no label but" in outcome(name, tmp_path / name, content.encode()), name


@pytest.mark.parametrize("name", ["labels, CSV", "labels, TSV"])
def test_names_of_columns_alone_are_refused(name: str, tmp_path: Path) -> None:
    header, *rows = READERS[name].plain.splitlines(keepends=True)
    assert "has no row" in outcome(name, tmp_path / "alone", header.encode())
    twice = "".join(row.replace("\n", f"{row[4]}{row[:4]}\n") for row in [header]) + "".join(rows)
    assert "has two columns text" in outcome(name, tmp_path / "twice", twice.encode())


@pytest.mark.parametrize("name", JSON)
def test_a_name_that_stands_twice_in_an_object_is_refused(name: str, tmp_path: Path) -> None:
    content = READERS[name].plain.replace("{", '{"text": "other", "source": "other", "tokens": ["other"], ')
    assert "line 1 has two values named" in outcome(name, tmp_path / "twice", content.encode())


def test_a_quoted_cell_has_line_ends(tmp_path: Path, plain: dict[str, Any]) -> None:
    for new in ("a\nfilm", "a\r\nfilm", 'a "film"'):
        cell = '"' + f"a café {new}".replace('"', '""') + '"'
        content = READERS["labels, CSV"].plain.replace("a café film", cell)
        read = outcome("labels, CSV", tmp_path / str(len(new)), content.encode())
        assert read == replaced(plain["labels, CSV"], new.replace("\r", ""))


ARRAYS: dict[str, Any] = {
    "inputs": np.ones((4, 3, 2)),
    "targets": np.arange(4) % 2,
    "images": np.ones((4, 2, 2)),
    "labels": np.arange(4),
}


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "inputs.npy"])
def test_a_damaged_file_of_arrays_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    rows = {"inputs": [[[1.0, 2], [3, 4]], [[5, 6]]] * 3, "targets": ["a", "b"] * 3}
    parquet.write_table(pa.table(rows), tmp_path / "x.parquet", write_page_checksum=True)
    np.savez_compressed(tmp_path / "x.npz", **ARRAYS)
    (folder := tmp_path / "folder").mkdir()
    for array in ("inputs", "targets"):
        np.save(folder / f"{array}.npy", ARRAYS[array])
    file = (folder if name.endswith(".npy") else tmp_path) / name
    path, whole, rng = str(folder if name.endswith(".npy") else file), file.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(250):
        place = rng.randrange(len(whole))
        cut = whole[:place] + (b"" if rng.random() < 0.3 else bytes([rng.randrange(256)]) + whole[place + 1 :])
        file.write_bytes(cut)
        for read in (lambda: read_table(path, features=["inputs"], target="targets"), lambda: read_images(path)):
            try:
                read()
            except ValueError as error:
                refused += 1
                assert path in str(error) and "\n" not in str(error) and "; " in str(error), str(error)
    assert refused > 50


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_text_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    rng, whole = random.Random(name), READERS[name].plain.encode()
    for k in range(60):
        content = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(content))
            content[place : place + rng.randrange(3)] = rng.choice(
                [b"\n", b"\t", b'"', b" ", b"{", b"\xff", b"", b"[]"]
            )
        outcome(name, tmp_path / str(k), bytes(content))
