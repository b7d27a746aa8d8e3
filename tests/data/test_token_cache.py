"""Caches of tokens, of a text and of separate texts: what is in them, made once, whole or made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from data.helpers import left_in, refused, stream, write
from data.modules import labelled, parallel
from seqlab_data import token_cache
from seqlab_data.cache import EncodedTexts, encode_texts
from seqlab_data.checked import NOTE
from seqlab_data.corpus import Corpus
from seqlab_data.documents import find_documents
from seqlab_data.splits import SPLITS
from seqlab_data.token_cache import TokenCache, open_token_cache
from seqlab_data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    StoredTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
)

FRACTIONS = (0.5, 0.25, 0.25)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [write(tmp_path, f"{i}.txt", text) for i, text in enumerate(["abcdefgh", "ijkl", "mnöp"])]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def opened(paths: list[str], root: Path | None, make: Any = CharTokenizer, fractions: Any = FRACTIONS) -> TokenCache:
    return open_token_cache(find_documents(paths), fractions, make, root)


def folder_of(cache: TokenCache) -> Path:
    return Path(cache.splits["train"].path).parent


def text_with_marks(cache: TokenCache, split: str) -> str:
    """The split's text, with | where bos is."""
    bos = cache.tokenizer.bos_id
    return "".join("|" if i == bos else cache.tokenizer.decode([i]) for i in stream(cache, split))


def test_the_text_is_cut_and_each_document_begins_with_bos(paths: list[str], root: Path) -> None:
    cache = opened(paths, root)
    assert [text_with_marks(cache, split) for split in SPLITS] == ["|abcdefgh", *["|" + "\ufffd" * 4] * 2]
    described = [(cache.splits[split].num_tokens, cache.splits[split].num_chars) for split in SPLITS]
    assert described == [(9, 8), (5, 4), (5, 4)]

    seen = []

    def everything(text: str) -> CharTokenizer:
        seen.append(text)
        return CharTokenizer("abcdefghijklmnöp")

    cache = opened(paths, root, everything, (0.6, 0.3, 0.1))  # cuts two documents in two, which begin again
    assert seen == ["abcdefghij"], "the tokenizer sees the train split alone"
    assert [text_with_marks(cache, split) for split in SPLITS] == ["|abcdefgh|ij", "|kl|mn", "|öp"]
    assert [cache.splits[split].begins for split in SPLITS[1:]] == [f"{path}, line 1" for path in paths[1:]]


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    cuts=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)).filter(lambda cuts: abs(cuts[0] - cuts[1]) > 0.01),
)
def test_the_splits_cover_every_character_once_in_order(
    lengths: list[int], cuts: tuple[float, float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    for i, length in enumerate(lengths):
        (folder / f"{i:02d}.txt").write_text("".join(chr(0x100 + (7 * i + c) % 500) for c in range(length)))
    first, last = sorted(cuts)
    fractions = (first, last - first, 1 - last)
    corpus = Corpus(find_documents(str(folder)), fractions, {})
    covered = [(share.split, share.document, text) for share, text in corpus.shares()]
    for i, document in enumerate(corpus.files):
        assert "".join(text for _, file, text in covered if file == i) == document.read()
    assert [SPLITS.index(split) for split, _, _ in covered] == sorted(SPLITS.index(split) for split, _, _ in covered)
    for split, fraction in zip(SPLITS, fractions, strict=True):
        share = sum(len(text) for its, _, text in covered if its == split)
        assert share == corpus.num_chars[split]
        assert abs(share - fraction * sum(lengths)) <= 1


SUBWORD = partial(SubwordTokenizer, vocab_size=268)


@pytest.mark.parametrize("make", [CharTokenizer, ByteTokenizer, SUBWORD, lambda text: ByteTokenizer(text)])
def test_it_is_made_once_and_the_files_may_move(
    make: Any, paths: list[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(paths, root, make)
    monkeypatch.setattr(token_cache, "_make", None)
    again = opened(paths, root, make)
    assert again.splits == first.splits
    assert again.tokenizer.to_dict() == first.tokenizer.to_dict()
    moved = [str(Path(path).rename(tmp_path / f"moved{i}.txt")) for i, path in enumerate(paths)]
    after = opened(moved, root, make)
    assert after.splits["val"].path == first.splits["val"].path
    assert after.splits["val"].begins == f"{moved[1]}, line 1"


def test_other_content_or_settings_have_another_cache(paths: list[str], root: Path) -> None:
    caches = [
        opened(paths, root),
        opened(paths[::-1], root),
        opened(paths, root, fractions=(0.6, 0.2, 0.2)),
        *(opened(paths, root, make) for make in (ByteTokenizer, SUBWORD, partial(SubwordTokenizer, vocab_size=269))),
    ]
    assert len({*map(folder_of, caches)}) == len(caches)


def test_a_tokenizer_that_reads_a_file_follows_the_file(paths: list[str], root: Path, tmp_path: Path) -> None:
    for alphabet in ("abc", "defg"):
        stored = write(tmp_path, "tokenizer.json", json.dumps(CharTokenizer(alphabet).to_dict()))
        cache = opened(paths, root, partial(StoredTokenizer, path=stored))
        assert cache.tokenizer.to_dict()["alphabet"] == alphabet


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("name", ["train.bin", "test.bin", "splits.json", "sums.json", "tokenizer.json"])
def test_damage_is_found_and_made_good(paths: list[str], root: Path, name: str, damage: Any) -> None:
    cache = opened(paths, root)
    folder = folder_of(cache)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != NOTE}
    damage(folder / name)
    assert opened(paths, root).splits == cache.splits
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != NOTE} == before


def test_a_failure_leaves_nothing_behind(paths: list[str], root: Path) -> None:
    Path(paths[2]).write_bytes(b"mn\xff")
    with refused("byte 2 is 0xff"):
        opened(paths, root)

    class Broken(ByteTokenizer):
        def encode_array(self, text: str) -> NDArray[np.int32]:
            if "m" in text:
                raise ValueError("broken")
            return super().encode_array(text)

    Path(paths[2]).write_bytes(b"mn")
    with refused("broken"):
        opened(paths, root, Broken)
    assert left_in(root) == []


def test_what_a_killed_process_left_does_not_matter(paths: list[str], root: Path) -> None:
    cache = opened(paths, root)
    folder = folder_of(cache)
    left = folder.rename(folder.with_name(f"{folder.name}.tmp"))
    (left / "stray").touch()
    assert opened(paths, root).splits == cache.splits
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

    assert stream(opened(paths, root, Large), "train") == [1, *(2**16 + 3 + byte for byte in b"abcdefgh")]


def test_of_many_at_once_one_makes_it(paths: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_a_while(*args: Any) -> Any:
        sleep(0.1)
        return DEFAULT

    make = Mock(wraps=token_cache._make, side_effect=after_a_while)
    monkeypatch.setattr(token_cache, "_make", make)
    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(opened, paths, root) for _ in range(4)]]
    assert make.call_count == 1 and all(cache.splits == found[0].splits for cache in found)


def test_the_default_folder(paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQLAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert folder_of(opened(paths, None)).parent == tmp_path / "home" / ".cache" / "seqlab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder_of(opened(paths, None)).parent == tmp_path / "xdg" / "seqlab"
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "own"))
    assert folder_of(opened(paths, None)).parent == tmp_path / "own"


SETS = {"train": ["a dog, a cat", "the cat"], "val": ["", "a d\u00f6g\nor two"], "none": []}
FACTORIES: list[Callable[[str], Tokenizer]] = [
    WordTokenizer,
    CharTokenizer,
    partial(SubwordTokenizer, vocab_size=275),
    lambda text: WordTokenizer(text, min_count=2),
]


def encoded(factory: Callable[[str], Tokenizer], **texts: list[str]) -> EncodedTexts:
    given = SETS | texts
    return encode_texts(given, given["train"], factory)


def shown(found: EncodedTexts) -> Any:
    return found.tokenizer.to_dict(), {name: [ids.tolist() for ids in some] for name, some in found.ids.items()}


def folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_tokens_are_the_tokenizers_and_made_once(
    root: Path, factory: Callable[[str], Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = factory("\n".join(SETS["train"]))
    expected = {name: [tokenizer.encode(text) for text in some] for name, some in SETS.items()}
    assert shown(encoded(factory)) == (tokenizer.to_dict(), expected)
    [folder] = folders(root)
    monkeypatch.setattr(type(tokenizer), "encode_array", None)
    assert shown(encoded(factory)) == (tokenizer.to_dict(), expected)
    assert folders(root) == [folder]


def test_other_texts_or_settings_have_another_cache(root: Path) -> None:
    for val in (SETS["val"], [*SETS["val"], "a"], ["a d\u00f6g", "or two"], SETS["val"][::-1]):
        encoded(WordTokenizer, val=val)
    encoded(WordTokenizer, train=[*SETS["train"], "dog"])
    for factory in (CharTokenizer, partial(WordTokenizer, min_count=2), partial(WordTokenizer, min_count=3)):
        encoded(factory)
    assert len(folders(root)) == 8


def test_a_function_of_ones_own_is_called(root: Path) -> None:
    def own(cls: type[WordTokenizer], text: str) -> Tokenizer:
        return cls(text.upper())

    tokenizer = encoded(partial(own, WordTokenizer)).tokenizer
    assert tokenizer.to_dict() == WordTokenizer("\n".join(SETS["train"]).upper()).to_dict()


def test_data_modules_read_the_same_from_it(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> list[Any]:
        pairs = (parallel(tmp_path / "pairs", target_tokenizer=target) for target in (None, WordTokenizer))
        modules = (labelled(tmp_path), *pairs)
        return [[[part.tolist() for part in batch] for batch in data.val_dataloader()] for data in modules]

    before = batches()
    assert len(folders(root)) == 4
    monkeypatch.setattr(WordTokenizer, "encode_array", None)
    assert batches() == before
