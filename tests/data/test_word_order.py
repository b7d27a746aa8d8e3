"""Shuffled words: which change places and which do not, by what, and that no cache gives those of another order."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from data.helpers import QUIET
from data.modules import MANY, labelled, parallel
from seqlab_data import TextDataModule, reading, token_cache
from seqlab_data.tokenizers import CharTokenizer, SubwordTokenizer, WordTokenizer
from seqlab_data.word_order import shuffled_lines, shuffled_words

pytestmark = QUIET
ROWS = np.arange(len(MANY))
SUBWORD = partial(SubwordTokenizer, vocab_size=290)


def test_words_change_places_and_whitespace_does_not() -> None:
    text = " a bb\t\tccc d \r\n e"
    found = shuffled_words(text, 7)
    assert found == shuffled_words(text, 7) == " d e\t\ta ccc \r\n bb"  # stored: it is so on every machine
    assert len({shuffled_words("a b c", key) for key in range(99)}) == 6
    assert shuffled_words("", 7) == "" and shuffled_words(" one ", 7) == " one "


@given(text=st.text("abc \n\r\t", max_size=40), size=st.integers(1, 9))
@example(text="a b c d\n\ne f g\r\nh i", size=3)
def test_words_stay_in_their_line_however_a_text_is_read(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = "".join(shuffled_lines(pieces, 3, 0)).split("\n")
    assert lines == [shuffled_words(line, 3, 0, number) for number, line in enumerate(text.split("\n"))]


@pytest.mark.parametrize("tokenizer", [WordTokenizer, SUBWORD])
def test_labelled_texts_are_shuffled_and_all_else_stays(tokenizer: Any, tmp_path: Path) -> None:
    make = partial(labelled, tmp_path, tokenizer=tokenizer, max_len=40, max_tokens=80)
    natural, shuffled, other = make(), make(word_order="shuffled"), make(word_order="shuffled", seed=1)
    before, after, again = (data.rows("val").read(ROWS) for data in (natural, shuffled, other))
    assert natural.tokenizer.to_dict() == shuffled.tokenizer.to_dict(), "it learns from the text as it is"
    assert torch.equal(before.targets, after.targets)
    assert not torch.equal(before.inputs, after.inputs) and not torch.equal(after.inputs, again.inputs)
    decode = natural.tokenizer.decode
    for row, text in enumerate(MANY):
        assert decode(after.inputs[row].tolist()) == shuffled_words(text, 0, 1, row)
    assert torch.equal(make().rows("val").read(ROWS).inputs, before.inputs), "the cache has both"
    assert natural.describe()["digest"] != shuffled.describe()["digest"] == other.describe()["digest"]


@pytest.mark.parametrize("source", [WordTokenizer, SUBWORD])
@pytest.mark.parametrize("target", [WordTokenizer, None])
def test_sources_are_shuffled_and_targets_are_not(source: Any, target: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"source_tokenizer": source, "target_tokenizer": target, "max_len": 40, "max_tokens": 80}
    natural, shuffled = (parallel(tmp_path, word_order=order, **options) for order in ("natural", "shuffled"))
    before, after = (data.rows("val").read(ROWS[:-1]) for data in (natural, shuffled))
    assert torch.equal(before.targets, after.targets) and torch.equal(before.tokens, after.tokens)
    assert natural.references("val") == shuffled.references("val")
    assert not torch.equal(before.source, after.source)
    eos, decode = natural.source_tokenizer.eos_id, natural.source_tokenizer.decode
    for row, (ids, mask) in enumerate(zip(after.source, after.source_mask, strict=True)):
        assert ids[mask][-1] == eos and decode(ids[mask].tolist()) == shuffled_words(MANY[row], 0, 1, row)
    assert natural.source_tokenizer.to_dict() == shuffled.source_tokenizer.to_dict()


@pytest.mark.parametrize("tokenizer", [CharTokenizer, WordTokenizer, SUBWORD])
def test_lines_are_shuffled_after_a_cut(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {number} has some words of its own" for number in range(60)]
    (tmp_path / "x.txt").write_text("\n".join(lines))

    def text(**options: Any) -> tuple[TextDataModule, dict[str, str]]:
        given = {"tokenizer": tokenizer, "seq_len": 8, "split": (0.5, 0.25, 0.25), "cache_dir": str(tmp_path / "cache")}
        data = TextDataModule(str(tmp_path / "x.txt"), **(given | options))
        files = data._caches[0].splits
        ids = {split: np.fromfile(file.path, file.dtype)[1:].tolist() for split, file in files.items()}
        return data, {split: data.tokenizer.decode(some) for split, some in ids.items()}

    natural, before = text()
    shuffled, after = text(word_order="shuffled")
    assert natural.tokenizer.to_dict() == shuffled.tokenizer.to_dict()
    chars = [{name: of["chars"] for name, of in data.describe()["splits"].items()} for data in (natural, shuffled)]
    assert chars[0] == chars[1]
    for number, split in enumerate(before):
        assert before[split] != after[split]
        if tokenizer is not WordTokenizer:  # which does not keep the ends of lines
            expected = [shuffled_words(line, 0, number, 0, row) for row, line in enumerate(before[split].split("\n"))]
            assert after[split].split("\n") == expected
        assert Counter(before[split].split()) == Counter(after[split].split())
    assert text()[1] == before and text(word_order="shuffled")[1] == after
    assert text(word_order="shuffled", seed=1)[1] != after
    monkeypatch.setattr(reading, "CHUNK", 7)
    monkeypatch.setattr(token_cache, "BLOCK", 30)
    assert text(word_order="shuffled", num_workers=2, cache_dir=str(tmp_path / "other"))[1] == after
