"""Documents that a path names, their order, the refusal of bad text, and the bar of a long one."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data.helpers import refused, write
from seqlab_data import reading
from seqlab_data.documents import content_digest, find_documents, source_name
from seqlab_data.measured import measure
from seqlab_data.progress import CharsRead


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for name in ("b.txt", "a.md", "sub/c.txt", "sub/deep/d.txt", ".hidden", ".git/config", "sub/.e.txt"):
        write(folder, name, f"text of {name}")
    return folder


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["b.txt"], ["b.txt"]),
        ([".hidden"], [".hidden"]),
        ([""], ["a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"]),
        (["*.txt"], ["b.txt"]),
        (["**/*.txt"], ["b.txt", "sub/c.txt", "sub/deep/d.txt"]),
        (["sub/*.txt", "a.md"], ["sub/c.txt", "a.md"]),
    ],
)
def test_files_folders_and_globs_are_read_sorted(folder: Path, paths: list[str], found: list[str]) -> None:
    documents = find_documents([str(folder / path) for path in paths])
    assert [os.path.relpath(document.name, folder) for document in documents] == found


def test_a_name_that_looks_like_a_glob_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[x].txt", "brackets")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for path in (str(tmp_path / "[x].txt"), "~/[x].txt"):
        assert [document.read() for document in find_documents(path)] == ["brackets"]


def test_no_path_is_cpythons_documentation() -> None:
    documents = find_documents(None)
    assert [document.name for document in documents] == sorted(topics)
    assert "".join(document.read() for document in documents) == "".join(topics[name] for name in sorted(topics))
    assert source_name(None).startswith("pydoc_data.topics of CPython 3.")


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_a_mark_is_no_text_and_line_ends_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    path = write(tmp_path, "text", b"\xef\xbb\xbfone\r\ntwo\rthree\r\r\n\xe2\x80\xa8\xc2\x85\xef\xbb\xbf\r")
    assert find_documents(path)[0].read() == "one\ntwo\rthree\r\n\u2028\x85\ufeff\r"
    path = write(tmp_path, "text", b"one\r\ntwo\0")
    with refused(r"text, line 2 has a NUL character, so it is not UTF-8; data\.encoding"):
        find_documents(path)[0].read()


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
@given(content=st.lists(st.binary(max_size=5) | st.text(max_size=3).map(str.encode)).map(b"".join))
@example(content=b"\xff")
@example(content=b"\xe9 la carte")
@example(content="é€".encode() + b"\x80")
@example(content=b"cut \xf0\x9f\x98")
@example(content=b"\xed\xa0\x80")
def test_the_first_byte_that_is_not_utf8_is_named(folder: Path, chunk: int, content: bytes) -> None:
    content = b"abc" + content.replace(b"\0", b"").replace(b"\r", b"")
    path = write(folder, "sub/.latin.txt", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK", chunk)
        try:
            expected = content.decode()
        except UnicodeDecodeError as error:
            with refused(f"latin.*byte {error.start} is 0x{content[error.start]:02x}"):
                find_documents(path)[0].read()
        else:
            assert find_documents(path)[0].read() == expected


def test_a_path_without_a_file_is_refused(folder: Path, tmp_path: Path) -> None:
    for name, message in (("missing.txt", r"missing\.txt does not exist"), ("*.xyz", r"\*\.xyz matches no file")):
        with refused(message):
            find_documents([str(folder / "b.txt"), str(folder / name)])
    with refused("matches no file"):
        find_documents(str(tmp_path))
    with refused("empty list"):
        find_documents([])
    with refused(r"empty\.txt is empty: it ends at byte 0"):
        find_documents(write(tmp_path, "empty.txt", ""))[0].read()


def test_the_digest_depends_on_content_order_and_boundaries_not_on_names(tmp_path: Path) -> None:
    def digest(*texts: str, prefix: str = "") -> str:
        paths = [write(tmp_path, f"{prefix}{i}", text) for i, text in enumerate(texts)]
        found = measure(find_documents(paths))
        assert found == (content_digest(text.encode() for text in texts), sum(map(len, texts)))
        return found.digest

    assert digest("ab", "c") == digest("ab", "c", prefix="other")
    assert len({digest("ab", "c"), digest("c", "ab"), digest("a", "bc"), digest("abc")}) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr, shown", [(Terminal(), True), (io.StringIO(), False)])
def test_a_bar_is_shown_after_a_second(stderr: io.StringIO, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    clock = iter([0.0, 0.5, *[2.0] * 9])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with CharsRead("encoding text", 40_000_000) as bar:
        bar.add(10_000_000)
        assert stderr.getvalue() == ""
        bar.add(10_000_000)
        assert ("encoding text" in stderr.getvalue() and "20 of 40" in stderr.getvalue()) == shown
    assert bool(stderr.getvalue()) == shown
