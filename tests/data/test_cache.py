"""The tokens of separate texts: what the tokenizer would give, made once, and whole or made again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data.helpers import refused
from data.modules import labelled, parallel
from seqlab_data.cache import EncodedTexts, encode_texts
from seqlab_data.tokenizers import CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer

TEXTS = {"train": ["a dog, a cat", "the cat"], "val": ["", "a d\u00f6g\nor two"], "none": []}
FACTORIES: list[Callable[[str], Tokenizer]] = [
    WordTokenizer,
    CharTokenizer,
    partial(SubwordTokenizer, vocab_size=275),
    lambda text: WordTokenizer(text, min_count=2),
]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def encoded(factory: Callable[[str], Tokenizer], **texts: list[str]) -> EncodedTexts:
    given = TEXTS | texts
    return encode_texts(given, given["train"], factory)


def shown(found: EncodedTexts) -> Any:
    return found.tokenizer.to_dict(), {name: [ids.tolist() for ids in some] for name, some in found.ids.items()}


def folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()]


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_tokens_are_the_tokenizers_and_made_once(
    root: Path, factory: Callable[[str], Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = factory("\n".join(TEXTS["train"]))
    expected = {name: [tokenizer.encode(text) for text in some] for name, some in TEXTS.items()}
    assert shown(encoded(factory)) == (tokenizer.to_dict(), expected)
    [folder] = folders(root)
    monkeypatch.setattr(type(tokenizer), "encode_array", None)
    assert shown(encoded(factory)) == (tokenizer.to_dict(), expected)
    assert folders(root) == [folder]


def test_other_texts_or_settings_have_another_cache(root: Path) -> None:
    for val in (TEXTS["val"], [*TEXTS["val"], "a"], ["a d\u00f6g", "or two"], TEXTS["val"][::-1]):
        encoded(WordTokenizer, val=val)
    encoded(WordTokenizer, train=[*TEXTS["train"], "dog"])
    for factory in (CharTokenizer, partial(WordTokenizer, min_count=2), partial(WordTokenizer, min_count=3)):
        encoded(factory)
    assert len(folders(root)) == 8


def test_a_function_of_ones_own_is_called(root: Path) -> None:
    def own(cls: type[WordTokenizer], text: str) -> Tokenizer:
        return cls(text.upper())

    tokenizer = encoded(partial(own, WordTokenizer)).tokenizer
    assert tokenizer.to_dict() == WordTokenizer("\n".join(TEXTS["train"]).upper()).to_dict()


def test_damage_is_made_good_and_a_failure_leaves_nothing(root: Path) -> None:
    before = shown(encoded(WordTokenizer))
    [folder] = folders(root)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert shown(encoded(WordTokenizer)) == before
        assert path.stat().st_size == len(content)
    with refused("vocab_size"):
        encoded(partial(SubwordTokenizer, vocab_size=5))
    assert folders(root) == [folder]


def test_data_modules_read_the_same_from_it(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> list[Any]:
        pairs = (parallel(tmp_path / "pairs", target_tokenizer=target) for target in (None, WordTokenizer))
        modules = (labelled(tmp_path), *pairs)
        return [[[part.tolist() for part in batch] for batch in data.val_dataloader()] for data in modules]

    before = batches()
    assert len(folders(root)) == 4
    monkeypatch.setattr(WordTokenizer, "encode_array", None)
    assert batches() == before
