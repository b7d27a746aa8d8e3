"""The same documents in every kind of file are the same data; what is damaged is refused, by file and place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from datasets import Dataset, disable_progress_bars
from pyarrow.parquet import write_table

from data.helpers import left_in, refused
from seqlab_data import TextDataModule, reading, text_rows
from seqlab_data.documents import find_documents
from seqlab_data.measured import measure
from seqlab_data.tokenizers import ByteTokenizer

TEXTS = ["The first document, é.\n" * 20, "A second\u2028one.\n" * 30, "😀", "And the last: \u2581 猫!\n" * 15]


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


def write(folder: Path, kind: str, texts: list[str], packing: str = "") -> str:
    """The path of these documents."""
    folder.mkdir()
    if kind == ".txt":
        for i, text in enumerate(texts):
            (folder / f"{i}.txt{packing}").write_bytes(PACKED[packing](text.encode()))
        return str(folder / f"*.txt{packing}")
    if kind == ".jsonl":
        lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
        (folder / f"x{kind}{packing}").write_bytes(PACKED[packing](lines.encode()))
        return str(folder / f"x{kind}{packing}")
    table = pyarrow.table({"id": [*range(len(texts))], "text": texts})
    compression = {"": "none", ".gz": "gzip", ".zst": "zstd"}[packing]
    write_table(table, folder / "x.parquet", compression=compression, row_group_size=2, write_page_checksum=True)
    return str(folder / "x.parquet")


def make(path: str | list[str], folder: Path, **options: Any) -> TextDataModule:
    given = {"seq_len": 16, "split": (0.6, 0.2, 0.2), "tokenizer": ByteTokenizer, **options}
    return TextDataModule(path, cache_dir=str(folder / "cache"), **given)


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_same_documents_same_data(kind: str, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make(write(tmp_path / "plain", ".txt", TEXTS), tmp_path)
    monkeypatch.setattr(reading, "CHUNK", 7)
    path = write(tmp_path / "other", kind, TEXTS, packing)
    other = make(path, tmp_path)
    for data in (plain, other):
        data.setup("fit")
    assert other.identity() == plain.identity()
    assert other.describe()["splits"] == plain.describe()["splits"]
    assert other._caches[0].splits["train"].path == plain._caches[0].splits["train"].path
    documents = ["".join(texts) for file in find_documents(path) for texts in file.documents()]
    assert documents == TEXTS


def test_a_place_in_rows_is_named_by_file_and_document(tmp_path: Path) -> None:
    path = write(tmp_path / "text", ".jsonl", ["", *TEXTS, ""])
    with refused(r"test split begins at .*x\.jsonl, document 4, line \d+ and has \d+ tokens"):
        make(path, tmp_path, seq_len=350, split=(0.4, 0.4, 0.2)).setup("fit")
    plain = measure(find_documents(write(tmp_path / "plain", ".txt", TEXTS)))
    assert measure(find_documents(path)) == plain


def test_kinds_may_stand_side_by_side(tmp_path: Path) -> None:
    paths = [write(tmp_path / kind[1:], kind, [text]) for kind, text in zip((".txt", ".jsonl"), TEXTS, strict=False)]
    disable_progress_bars()
    Dataset.from_dict({"text": ["ein Satz", "noch einer\n"]}).save_to_disk(tmp_path / "saved")
    documents = find_documents([*paths, f"hf:{tmp_path / 'saved'}"])
    assert [file.read() for file in documents] == [*TEXTS[:2], "ein Satz\nnoch einer\n"]


GOOD = b'{"text": "a"}\n'
REFUSED = {
    "x.jsonl": {
        GOOD + b"\n" + GOOD: r"x\.jsonl, line 2 is empty; a line is a JSON object",
        GOOD + b'{"text": "a"': r"x\.jsonl, line 2 is not JSON: .*",
        GOOD + b'{"words": "a"}': r"x\.jsonl, line 2 has no 'text'; it has words",
        b'["text"]': r"x\.jsonl, line 1 has no 'text'; it has nothing",
        b'{"text": 3}': r"x\.jsonl, line 1 has the text 3, which is not a string",
        b'{"text": null}': r"x\.jsonl, line 1 has the text None, which is not a string",
        b'{"text": "\\ud800"}': r"x\.jsonl, line 1 contains a lone surrogate, which UTF-8 cannot encode",
        b'{"text": ""}\n': r"x\.jsonl has no row with a text; give rows whose column `text` is a document",
        GOOD + b'{"text": "\xff"}': r"x\.jsonl, line 2 is not UTF-8 text: byte 24 is 0xff",
        GOOD + b'{"text": "a", "id": ' + b"1" * 5000 + b"}": r"x\.jsonl, line 2 is not JSON: .*digits",
        b"[" * 99999: r"x\.jsonl, line 1 is not JSON: .*",
        GOOD + b'{"text": "' + b"a" * 300_000 + b'"}': r"x\.jsonl, line 2 has more than 200000 characters; .*",
        b"": r"x\.jsonl is empty",
    },
    "x.txt.gz": {
        gzip.compress(b"abc" * 999)[:-9]: r"x\.txt\.gz is damaged after \d+ bytes of its content: .*end",
        gzip.compress(b"abc")[:-8] + b"12345678": r"x\.txt\.gz is damaged after \d bytes of its content: .*CRC",
        b"abc": r"x\.txt\.gz is damaged after 0 bytes of its content: Not a gzipped file",
        gzip.compress(b""): r"x\.txt\.gz is empty",
        gzip.compress(b"ab\xff"): r"x\.txt\.gz, line 1 is not UTF-8 text: byte 2 is 0xff",
    },
    "x.jsonl.zst": {
        zstd(GOOD * 999)[:-5]: r"x\.jsonl\.zst is damaged after \d+ bytes of its content: .*",
        b"abc": r"x\.jsonl\.zst is damaged after 0 bytes of its content: .*",
        zstd(b"[]"): r"x\.jsonl\.zst, line 1 has no 'text'; it has nothing",
    },
    "x.parquet": {b"PAR1 and more": r"x\.parquet is damaged or not a Parquet file, after line 0: .*"},
    "x.parquet.gz": {b"": r"x\.parquet\.gz is compressed; decompress it, since Parquet compresses internally"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_damaged_is_refused_by_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "LONGEST_LINE", 200_000)
    monkeypatch.setattr(reading, "CHUNK", 1000)
    for content, message in REFUSED[name].items():
        (tmp_path / name).write_bytes(content)
        with refused(message):
            make(str(tmp_path / name), tmp_path).setup("fit")
        assert left_in(tmp_path / "cache") == []


def test_a_damaged_or_other_parquet_file_is_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "text", ".parquet", [f"abc {i} " * 500 for i in range(6)], ".zst"))
    whole, good = path.read_bytes(), measure(find_documents(str(path)))
    count, footer = 0, int.from_bytes(whole[-8:-4], "little") + 8
    for place in range(0, len(whole) - footer, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            assert measure(find_documents(str(path))) == good, "what was damaged is not read"
        except ValueError as error:
            assert "x.parquet" in str(error) and "\n" not in str(error)
            count += 1
    assert count > 20
    write_table(pyarrow.table({"words": ["a"]}), path)
    with refused(r"x\.parquet has no column text; it has words"):
        make(str(path), tmp_path).setup("fit")
    for texts, message in (
        (pyarrow.array([1]), "line 1 has the text 1, which is not a string"),
        (pyarrow.array([b"a", b"\xff"]).view("string"), "line 2 is not UTF-8 text"),
        (pyarrow.array([None], "string"), "has no row with a text"),
    ):
        write_table(pyarrow.table({"text": texts}), path)
        with refused(rf"x\.parquet,? {message}"):
            make(str(path), tmp_path).setup("fit")
    write_table(pyarrow.table({"text": ["a", None, "b"]}), path)
    [document] = find_documents(str(path))
    assert [*map("".join, document.documents())] == ["a", "b"]


def test_a_packed_bomb_takes_no_memory(tmp_path: Path) -> None:
    """Holds 200 MB of one character a piece at a time."""
    import tracemalloc

    path = tmp_path / "bomb.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b"x" * 10**6)
    [document] = find_documents(str(path))
    tracemalloc.start()
    assert sum(map(len, document.texts())) == 200 * 10**6
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
