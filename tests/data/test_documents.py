"""Documents that a path names, their order, and the refusal of bad text."""

from __future__ import annotations

import os
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from seqlab_data import reading
from seqlab_data.documents import content_digest, find_documents, source_name
from seqlab_data.measured import measure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.md", "sub/c.txt", "sub/deep/d.txt", ".hidden", ".git/config", "sub/.e.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return tmp_path


def found(folder: Path, path: str | list[str]) -> list[str]:
    return [os.path.relpath(document.name, folder) for document in find_documents(path)]


def test_a_file(folder: Path) -> None:
    assert found(folder, str(folder / "b.txt")) == ["b.txt"]
    assert found(folder, str(folder / ".hidden")) == [".hidden"]


def test_a_folder_is_read_recursively_sorted_without_hidden_files(folder: Path) -> None:
    assert found(folder, str(folder)) == ["a.md", "b.txt", "sub/c.txt", "sub/deep/d.txt"]


def test_globs(folder: Path) -> None:
    assert found(folder, str(folder / "*.txt")) == ["b.txt"]
    assert found(folder, str(folder / "**" / "*.txt")) == ["b.txt", "sub/c.txt", "sub/deep/d.txt"]


def test_a_list_keeps_its_order(folder: Path) -> None:
    assert found(folder, [str(folder / "sub" / "*.txt"), str(folder / "a.md")]) == ["sub/c.txt", "a.md"]


def test_a_name_that_looks_like_a_glob_is_a_file_if_there_is_one(folder: Path) -> None:
    (folder / "[x].txt").write_text("brackets")
    assert [document.read() for document in find_documents(str(folder / "[x].txt"))] == ["brackets"]


def test_the_home_folder_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert found(folder, "~/b.txt") == ["b.txt"]


def test_no_path_is_cpythons_documentation() -> None:
    documents = find_documents(None)
    assert [document.name for document in documents] == sorted(topics)
    assert "".join(document.read() for document in documents) == "".join(topics[name] for name in sorted(topics))
    assert source_name(None).startswith("pydoc_data.topics of CPython 3.")


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_a_mark_is_no_text_and_line_ends_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\r\r\n\xe2\x80\xa8\xc2\x85\xef\xbb\xbf\r")
    assert find_documents(str(path))[0].read() == "one\ntwo\rthree\r\n\u2028\x85\ufeff\r"
    path.write_bytes(b"one\r\ntwo\0")
    with pytest.raises(ValueError, match=r"text, line 2 has a NUL character, so that it is not UTF-8; data\.encoding"):
        find_documents(str(path))[0].read()


@pytest.mark.parametrize("name, message", [("missing.txt", "does not exist"), ("*.xyz", "matches no file")])
def test_a_path_without_a_file_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        find_documents([str(folder / "b.txt"), str(folder / name)])
    assert name in str(refusal.value)


def test_an_empty_folder_and_an_empty_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="matches no file"):
        find_documents(str(tmp_path))
    with pytest.raises(ValueError, match="empty list"):
        find_documents([])


@pytest.mark.parametrize(
    "data, offset",
    [
        (b"\xff", 0),
        (b"abc\xe9 la carte", 3),
        ("é€".encode() + b"\x80", 5),
        (b"cut \xf0\x9f\x98", 4),
        (b"\xed\xa0\x80", 0),
    ],
)
def test_the_first_byte_that_is_not_utf8_is_named(tmp_path: Path, data: bytes, offset: int) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError) as refusal:
        find_documents(str(path))[0].read()
    assert str(path) in str(refusal.value)
    assert f"byte {offset} is 0x{data[offset]:02x}" in str(refusal.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.touch()
    with pytest.raises(ValueError, match=r"empty\.txt is empty, it ends at byte 0"):
        find_documents(str(path))[0].read()


def test_the_digest_depends_on_content_order_and_boundaries_not_on_names(tmp_path: Path) -> None:
    def digest(*texts: str, prefix: str = "") -> str:
        paths = [tmp_path / f"{prefix}{i}" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        found = measure(find_documents([str(path) for path in paths]))
        assert found == (content_digest(text.encode() for text in texts), sum(map(len, texts)))
        return found.digest

    assert digest("ab", "c") == digest("ab", "c", prefix="other")
    assert len({digest("ab", "c"), digest("c", "ab"), digest("a", "bc"), digest("abc")}) == 4
