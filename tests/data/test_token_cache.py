"""The token cache: what is in it, that nothing leaks between splits, and that it is whole or made again."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seqlab_data import token_cache
from seqlab_data.checked import NOTE
from seqlab_data.corpus import Corpus
from seqlab_data.documents import find_documents
from seqlab_data.splits import SPLITS
from seqlab_data.token_cache import TokenCache, open_token_cache
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, StoredTokenizer, SubwordTokenizer, Tokenizer

FRACTIONS = (0.5, 0.25, 0.25)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    texts = ["abcdefgh", "ijkl", "mnöp"]
    names = [tmp_path / f"{i}.txt" for i in range(3)]
    for name, text in zip(names, texts, strict=True):
        name.write_text(text, encoding="utf-8")
    return [str(name) for name in names]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def left_in(root: Path) -> list[Path]:
    """The files in a folder of caches, but for locks."""
    return [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]


def stream(cache: TokenCache, split: str) -> NDArray[Any]:
    file = cache.splits[split]
    return np.fromfile(file.path, dtype=file.dtype)


def text_with_marks(cache: TokenCache, split: str) -> str:
    """The split's text, with | where bos is."""
    bos = cache.tokenizer.bos_id
    return "".join("|" if i == bos else cache.tokenizer.decode([i]) for i in stream(cache, split).tolist())


def test_the_text_is_cut_and_each_document_begins_with_bos(paths: list[str], root: Path) -> None:
    cache = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    assert text_with_marks(cache, "train") == "|abcdefgh"
    assert text_with_marks(cache, "val") == "|\ufffd\ufffd\ufffd\ufffd"
    assert [len(stream(cache, split)) for split in SPLITS] == [9, 5, 5]
    described = [(cache.splits[split].num_tokens, cache.splits[split].num_chars) for split in SPLITS]
    assert described == [(9, 8), (5, 4), (5, 4)]


def test_a_document_cut_in_two_begins_again_in_the_next_split(paths: list[str], root: Path) -> None:
    class Everything(CharTokenizer):
        def __init__(self, text: str) -> None:
            super().__init__("abcdefghijklmnöp")

    cache = open_token_cache(find_documents(paths), (0.6, 0.3, 0.1), Everything, root)
    assert [text_with_marks(cache, split) for split in SPLITS] == ["|abcdefgh|ij", "|kl|mn", "|öp"]
    assert cache.splits["val"].begins == f"{paths[1]}, line 1"
    assert cache.splits["test"].begins == f"{paths[2]}, line 1"


def test_the_tokenizer_sees_the_train_split_alone(paths: list[str], root: Path) -> None:
    seen = []

    def spy(text: str) -> Tokenizer:
        seen.append(text)
        return ByteTokenizer(text)

    open_token_cache(find_documents(paths), (0.6, 0.3, 0.1), spy, root)
    assert seen == ["abcdefghij"]
    assert (
        open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root).tokenizer.to_dict()["alphabet"]
        == "abcdefgh"
    )


@pytest.mark.parametrize("lengths", [[1], [7], [3, 5, 2], [1] * 20, [100, 1, 1]])
@pytest.mark.parametrize("fractions", [FRACTIONS, (0.9, 0.05, 0.05), (0.34, 0.33, 0.33), (0.01, 0.01, 0.98)])
def test_the_splits_cover_every_character_once_in_order(
    lengths: list[int], fractions: tuple[float, ...], tmp_path: Path
) -> None:
    for i, length in enumerate(lengths):
        (tmp_path / f"{i:02d}.txt").write_text("".join(chr(0x100 + (7 * i + c) % 500) for c in range(length)))
    corpus = Corpus(find_documents(str(tmp_path)), fractions, {})
    covered = [(share.split, share.document, text) for share, text in corpus.shares()]
    for i, document in enumerate(corpus.files):
        assert "".join(text for _, file, text in covered if file == i) == document.read()
    assert [SPLITS.index(split) for split, _, _ in covered] == sorted(SPLITS.index(split) for split, _, _ in covered)
    for split, fraction in zip(SPLITS, fractions, strict=True):
        share = sum(len(text) for its, _, text in covered if its == split)
        assert share == corpus.num_chars[split]
        assert abs(share - fraction * sum(lengths)) <= 1


def test_it_is_made_once(paths: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for factory in (
        CharTokenizer,
        ByteTokenizer,
        partial(SubwordTokenizer, vocab_size=268),
        lambda t: ByteTokenizer(t),
    ):
        first = open_token_cache(find_documents(paths), FRACTIONS, factory, root)
        with monkeypatch.context() as patch:
            patch.setattr(token_cache, "_make", None)
            again = open_token_cache(find_documents(paths), FRACTIONS, factory, root)
        assert again.splits == first.splits
        assert again.tokenizer.to_dict() == first.tokenizer.to_dict()


def test_other_content_or_settings_have_another_cache(paths: list[str], root: Path) -> None:
    def folder(paths: list[str], fractions: tuple[float, ...] = FRACTIONS, factory: Any = CharTokenizer) -> str:
        return open_token_cache(find_documents(paths), fractions, factory, root).splits["train"].path

    folders = [
        folder(paths),
        folder(paths[::-1]),
        folder(paths, (0.6, 0.2, 0.2)),
        folder(paths, factory=ByteTokenizer),
        folder(paths, factory=partial(SubwordTokenizer, vocab_size=268)),
        folder(paths, factory=partial(SubwordTokenizer, vocab_size=269)),
    ]
    assert len(set(folders)) == len(folders)


def test_a_tokenizer_that_reads_a_file_follows_the_file(paths: list[str], root: Path, tmp_path: Path) -> None:
    stored = tmp_path / "tokenizer.json"
    for alphabet in ("abc", "defg"):
        stored.write_text(json.dumps(CharTokenizer(alphabet).to_dict()))
        factory = partial(StoredTokenizer, path=str(stored))
        cache = open_token_cache(find_documents(paths), FRACTIONS, factory, root)
        assert cache.tokenizer.to_dict()["alphabet"] == alphabet


def test_the_files_may_move(paths: list[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    moved = [str(Path(path).rename(tmp_path / f"moved{i}.txt")) for i, path in enumerate(paths)]
    monkeypatch.setattr(token_cache, "_make", None)
    after = open_token_cache(find_documents(moved), FRACTIONS, CharTokenizer, root)
    assert after.splits["val"].path == before.splits["val"].path
    assert after.splits["val"].begins == f"{moved[1]}, line 1"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("name", ["train.bin", "test.bin", "splits.json", "sums.json", "tokenizer.json"])
def test_damage_is_found_and_made_good(paths: list[str], root: Path, name: str, damage: Any) -> None:
    cache = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    folder = Path(cache.splits["train"].path).parent
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != NOTE}
    damage(folder / name)
    again = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    assert again.splits == cache.splits
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != NOTE} == before


def test_a_failure_leaves_nothing_behind(paths: list[str], root: Path) -> None:
    Path(paths[2]).write_bytes(b"mn\xff")
    with pytest.raises(ValueError, match="byte 2 is 0xff"):
        open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)

    class Broken(ByteTokenizer):
        def encode_array(self, text: str) -> NDArray[np.int32]:
            if "m" in text:
                raise ValueError("broken")
            return super().encode_array(text)

    Path(paths[2]).write_bytes(b"mn")
    with pytest.raises(ValueError, match="broken"):
        open_token_cache(find_documents(paths), FRACTIONS, Broken, root)
    assert left_in(root) == []


def test_what_a_killed_process_left_does_not_matter(paths: list[str], root: Path) -> None:
    cache = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    folder = Path(cache.splits["train"].path).parent
    folder.rename(folder.with_name(f"{folder.name}.tmp"))
    (folder.with_name(f"{folder.name}.tmp") / "stray").touch()
    again = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer, root)
    assert again.splits == cache.splits
    assert not (folder / "stray").exists()


def test_large_vocabularies_take_four_bytes(paths: list[str], root: Path) -> None:
    class Large(ByteTokenizer):
        def __init__(self, text: str) -> None:
            Tokenizer.__init__(self, [*ByteTokenizer().token_bytes, *[b""] * 2**16])

        def encode_array(self, text: str) -> NDArray[np.int32]:
            return super().encode_array(text) + 2**16

        @classmethod
        def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Large:
            return cls("")

    cache = open_token_cache(find_documents(paths), FRACTIONS, Large, root)
    assert stream(cache, "train").tolist() == [1, *(2**16 + 3 + byte for byte in b"abcdefgh")]


PROCESS = """
import json, sys
from seqlab_data.documents import find_documents
from seqlab_data import token_cache
from seqlab_data.checked import NOTE
from seqlab_data.corpus import Corpus
make, made = token_cache._make, []
token_cache._make = lambda *args: (made.append(1), make(*args))
from seqlab_data.tokenizers import SubwordTokenizer
cache = token_cache.open_token_cache(find_documents(None), (0.9, 0.05, 0.05), SubwordTokenizer, sys.argv[1])
print(json.dumps([len(made), cache.splits["train"].num_tokens]))
"""


@pytest.mark.slow
def test_many_processes_at_once_make_it_once(root: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(root)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    results = [json.loads(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum(made for made, _ in results) == 1
    assert len({num_tokens for _, num_tokens in results}) == 1


def test_the_default_folder(paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder() -> Path:
        cache = open_token_cache(find_documents(paths), FRACTIONS, CharTokenizer)
        return Path(cache.splits["train"].path).parent.parent

    monkeypatch.delenv("SEQLAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert folder() == tmp_path / "home" / ".cache" / "seqlab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder() == tmp_path / "xdg" / "seqlab"
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "own"))
    assert folder() == tmp_path / "own"
