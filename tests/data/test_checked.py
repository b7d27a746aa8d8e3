"""Cost of a start, and the damage it still finds: sources and tokens are read again only where they were touched, and a
bit that a disk has silently flipped is refused where it is read."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from filelock import FileLock

from data.helpers import refused
from seqlab_data import TextDataModule, cache, checked, measured
from seqlab_data.documents import find_documents
from seqlab_data.token_cache import TokenCache, open_token_cache
from seqlab_data.token_stream import TokenStream
from seqlab_data.tokenizers import ByteTokenizer

LONG_AGO = 10**18


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.txt"
    path.write_text("abcdefgh" * 100)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mock]:
    """Counts how often sources are measured, and files of a cache read to check them."""
    monkeypatch.setattr(measured, "SETTLED", -(10**9))  # the time of the entry is now
    mocks = {"measure": Mock(wraps=measured.measure), "_read": Mock(wraps=checked._read)}
    monkeypatch.setattr(measured, "measure", mocks["measure"])
    monkeypatch.setattr(checked, "_read", mocks["_read"])
    return mocks


def opened(path: Path) -> TokenCache:
    return open_token_cache(find_documents(str(path)), (0.6, 0.2, 0.2), ByteTokenizer, path.parent / "cache")


def module(path: Path, **options: Any) -> TextDataModule:
    given: dict[str, Any] = {"split": (0.6, 0.2, 0.2), "tokenizer": ByteTokenizer, "seq_len": 8, **options}
    return TextDataModule(str(path), cache_dir=str(path.parent / "cache"), **given)


def names_read(reads: dict[str, Mock]) -> list[str]:
    return sorted(call.args[0].name for call in reads["_read"].call_args_list)


SMALL = ["splits.json", "tokenizer.json"]


def test_a_later_start_reads_neither_text_nor_tokens(path: Path, reads: dict[str, Mock]) -> None:
    first = opened(path)
    for _ in range(2):
        reads["_read"].reset_mock()
        assert opened(path).splits == first.splits
        assert reads["measure"].call_count == 1 and names_read(reads) == SMALL


def test_a_touched_text_is_read_again(path: Path, reads: dict[str, Mock], monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(path).digest
    path.write_text("x" + "bcdefgha"[:7] + "abcdefgh" * 99)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    assert opened(path).digest != before, "its entry tells, where its time of change was set back"
    monkeypatch.setattr(measured, "SETTLED", 2 * 10**9)
    path.write_text("y" * 800)
    opened(path)
    path.write_text("z" * 800)
    states = Mock(return_value=measured._states(find_documents(str(path))))
    monkeypatch.setattr(measured, "_states", states)
    reads["measure"].reset_mock()
    assert opened(path).digest == opened(path).digest
    assert reads["measure"].call_count == 2, "of a change just now the clock may not tell the next"


def test_tokens_that_were_touched_are_checked_and_one_note_made(path: Path, reads: dict[str, Mock]) -> None:
    first = opened(path)
    train = Path(first.splits["train"].path)
    content = train.read_bytes()
    os.utime(train)
    for expected in ([*SMALL, "train.bin"], SMALL):
        reads["_read"].reset_mock()
        opened(path)
        assert names_read(reads) == expected
    for damaged in (content[:-2] + b"\1\1", content[:-1]):
        train.write_bytes(damaged)
        opened(path)
        assert train.read_bytes() == content
    (train.parent / checked.NOTE).write_text("[")
    reads["_read"].reset_mock()
    opened(path)
    assert len(names_read(reads)) == 5, "without a note everything is"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_is_read_only_is_checked_whole(number: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(path)
    train = Path(first.splits["train"].path)
    (train.parent / checked.NOTE).unlink()
    for place, name in ((os, "utime"), (os, "replace"), (Path, "write_text"), (Path, "unlink")):
        monkeypatch.setattr(place, name, Mock(side_effect=OSError(number, "read-only")))
    assert opened(path).splits == first.splits
    assert not [*train.parent.glob(f"{checked.NOTE}*")]
    assert len([*module(path).val_dataloader()]) == 1


def flip_in_silence(file: Path, place: int) -> None:
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_a_silently_flipped_bit_is_found(packing: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "BLOCK_BITS", 6)
    monkeypatch.setattr(checked, "BLOCK", 64)
    monkeypatch.setattr("seqlab_data.token_stream.CHECKED", 16)

    def tokens() -> Iterator[list[list[int]]]:
        data = module(path, batch_size=2, packing=packing)
        yield from (batch.tokens.tolist() for batch in data._loader(data._batches("train")))

    whole = [*tokens()]
    cached = opened(path).splits["train"]
    size = Path(cached.path).stat().st_size
    crc32 = Mock(wraps=zlib.crc32)
    monkeypatch.setattr(zlib, "crc32", crc32)
    stream = TokenStream(cached)
    for _ in range(3):
        stream.at(np.arange(cached.num_tokens))
    assert crc32.call_count == -(-size // 64), "each block once"
    flip_in_silence(Path(cached.path), 700)
    read: list[list[list[int]]] = []
    with refused(r"train\.bin is damaged between bytes 640 and 704; delete the folder"):
        read.extend(tokens())
    assert read == whole[: len(read)]


def test_one_process_makes_it_and_the_others_say_that_they_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(path)
    [folder] = (path.parent / "cache").glob("*.lock")
    for file in folder.with_suffix("").iterdir():
        file.unlink()
    monkeypatch.setattr(cache, "PATIENCE", 0.01)
    other = FileLock(folder)
    other.acquire()
    waiting = threading.Thread(target=opened, args=(path,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    other.release()
    waiting.join()
    assert capsys.readouterr().err == "data: waiting for another process, which makes these tokens\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_cache_of_another_user_is_read(
    number: int, path: Path, reads: dict[str, Mock], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(path)
    monkeypatch.setattr(measured, "locked", Mock(side_effect=OSError(number, "read-only")))
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(number, "read-only")))
    assert opened(path).splits == first.splits and reads["measure"].call_count == 1
    os.utime(path)
    assert opened(path).splits == first.splits and reads["measure"].call_count == 2
