"""Every reader meets every oddity of a file: it reads what it reads of the plain file, or refuses in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data.readers import CLASSES, JSON, READERS, TOKENS
from seqlab_data.arrays import read_images, read_table

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


PASS = "surrogatepass"
REFUSED: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "empty": ("is empty", lambda text: b""),
    "a byte-order mark alone": ("is empty except for", lambda text: b"\xef\xbb\xbf"),
    "line ends alone": ("", lambda text: b"\n\r\n\n"),
    "UTF-16": ("begins with the byte-order mark of UTF-16", lambda text: text.encode("utf-16")),
    "UTF-16 without a mark": ("", lambda text: text.encode("utf-16-le")),
    "UTF-32": ("begins with the byte-order mark of UTF-32", lambda text: text.encode("utf-32")),
    "a surrogate": ("is not UTF-8 text: byte", lambda text: text.replace("film", "\ud800").encode(errors=PASS)),
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


def whole(name: str, root: Path, content: bytes, encoding: str = "utf-8") -> tuple[Any, Any]:
    """Rows as read and what identifies them, or the one sentence that refuses them, which names the file and what to
    do."""
    path = Path(tempfile.mkdtemp(dir=root)) / READERS[name].file
    path.write_bytes(content)
    try:
        return READERS[name].read(path, encoding)
    except ValueError as error:
        said = str(error)
    assert path.name in said and "\n" not in said and "; " in said, f"{name}: {said}"
    return said, None


def outcome(name: str, root: Path, content: bytes, encoding: str = "utf-8") -> Any:
    return whole(name, root, content, encoding)[0]


def replaced(value: Any, new: str) -> Any:
    if isinstance(value, str):
        return value.replace("film", new)
    return type(value)(replaced(one, new) for one in value) if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oddities")


@pytest.fixture(scope="module")
def plain(root: Path) -> dict[str, Any]:
    read = {name: outcome(name, root, reader.plain.encode()) for name, reader in READERS.items()}
    assert all("film" in str(value) and isinstance(value, list) for value in read.values())
    return read


@pytest.mark.parametrize("oddity", SAME)
def test_what_is_no_text_is_not_read(oddity: str, root: Path, plain: dict[str, Any]) -> None:
    for name, reader in READERS.items():
        read = outcome(name, root, SAME[oddity](reader.plain))
        if (name, oddity) == ("a document", "no last line end"):
            read = [f"{text}\n" for text in read]
        assert read == plain[name], name


@pytest.mark.parametrize("oddity", REFUSED)
def test_what_is_no_text_of_the_encoding_is_refused(oddity: str, root: Path) -> None:
    says, content = REFUSED[oddity]
    for name, reader in READERS.items():
        said = outcome(name, root, content(reader.plain))
        assert isinstance(said, str) and says in said, f"{name}: {said}"


@pytest.mark.parametrize("oddity", WITHIN)
def test_what_ends_no_line_stays(oddity: str, root: Path, plain: dict[str, Any]) -> None:
    new = WITHIN[oddity]
    for name, reader in READERS.items():
        read = outcome(name, root, reader.plain.replace("film", new).encode())
        if (name, oddity) in NOT_KEPT:
            assert isinstance(read, str), name
        else:
            meant = json.loads(f'"{new}"') if name in JSON and "\\" in new else new
            assert read == replaced(plain[name], meant), name


def test_carriage_returns_alone_end_no_line(root: Path, plain: dict[str, Any]) -> None:
    for name, reader in READERS.items():
        read = outcome(name, root, reader.plain.replace("\n", "\r").encode())
        if name == "a document":
            assert read == [text.replace("\n", "\r") for text in plain[name]]
        else:
            assert isinstance(read, str) and "line 1 has a carriage return" in read, name


ENCODINGS = {
    **dict.fromkeys(("utf-16", "utf-16-be", "utf-32", "utf-8-sig"), "é日😀"),
    **{"latin-1": "éüß", "cp1252": "€œé", "shift_jis": "日本語", "koi8-r": "дж"},
}
"""Encodings, and a word of each."""


@pytest.mark.parametrize(("encoding", "word"), ENCODINGS.items())
def test_an_encoding_is_read_if_it_is_named(encoding: str, word: str, root: Path) -> None:
    for name, reader in READERS.items():
        text = reader.plain.replace("café", word)
        content = text.encode(encoding)
        if name != "word vectors":
            assert whole(name, root, content, encoding.upper()) == whole(name, root, text.encode()), name
        if not encoding.startswith("utf"):
            said = outcome(name, root, content)
            byte = next(i for i, byte in enumerate(content) if byte > 127)
            assert f"is not UTF-8 text: byte {byte} is 0x" in said, name
            assert ("data.encoding" in said) == (name != "word vectors")


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8", "latin-1"), ("utf-16-le", "utf-16"), ("utf-8", "utf-16-le"), ("utf-16", "utf-16-be")],
)
def test_another_encoding_than_the_file_says_is_refused(encoding: str, named: str, root: Path) -> None:
    mark = "\ufeff" if encoding == "utf-8" else ""
    for name, reader in READERS.items():
        if name != "word vectors":
            said = outcome(name, root, f"{mark}{reader.plain}".encode(encoding), named)
            assert isinstance(said, str), name


@pytest.mark.parametrize("label", ["p\u2028os", "p\u00a0os", " pos", "pos\u00a0", "\ufeffpos"])
def test_a_label_that_looks_like_another_is_refused(label: str, root: Path) -> None:
    for name in CLASSES:
        old = "DET" if name in TOKENS else "pos"
        said = outcome(name, root, READERS[name].plain.replace(old, label).encode())
        spaces = name in ("tags", "tags, CoNLL-U", "labels, space") and label == " pos"  # which separates columns
        mark = name in ("labels, space", "labels, TAB") and label == "\ufeffpos"  # of a file that begins
        assert isinstance(said, str) or spaces or mark, f"{name}: {said}"


def test_one_class_is_refused(root: Path) -> None:
    for name in CLASSES:
        content = READERS[name].plain.replace("neg", "pos").replace("DET", "NOUN")
        assert "has only the label" in outcome(name, root, content.encode()), name


@pytest.mark.parametrize("name", ["labels, CSV", "labels, TSV"])
def test_names_of_columns_that_stand_alone_or_twice_are_refused(name: str, root: Path) -> None:
    header, *rows = READERS[name].plain.splitlines(keepends=True)
    assert "has no row below the names of its columns; give rows" in outcome(name, root, header.encode())
    twice = header.replace("\n", f"{header[4]}{header[:4]}\n") + "".join(rows)
    assert "line 1 has two columns text; it has text, label, text" in outcome(name, root, twice.encode())


@pytest.mark.parametrize("name", JSON)
def test_a_name_that_stands_twice_in_an_object_is_refused(name: str, root: Path) -> None:
    content = READERS[name].plain.replace("{", '{"text": "other", "source": "other", "tokens": ["other"], ')
    assert "line 1 has two values named" in outcome(name, root, content.encode())


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


edits = st.tuples(
    st.integers(0, 10**6), st.integers(0, 2), st.sampled_from([b"\n", b"\t", b'"', b" ", b"{", b"\xff", b"", b"[]"])
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(edits=st.lists(edits, min_size=1, max_size=3))
def test_a_damaged_text_is_read_or_refused(name: str, root: Path, edits: list[tuple[int, int, bytes]]) -> None:
    content = bytearray(READERS[name].plain.encode())
    for place, length, new in edits:
        place %= len(content)
        content[place : place + length] = new
    outcome(name, root, bytes(content))
