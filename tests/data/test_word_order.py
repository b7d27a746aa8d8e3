"""Shuffled words: which change places and which do not, by what, and that no cache gives those of another order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.order import check_order
from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TextDataModule, reading, token_cache
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, WordTokenizer
from seqlab_data.word_order import shuffled_lines, shuffled_words

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]
TEXTS = [f"w{row} the cat  chased a\tmouse" for row in range(40)]


def test_words_change_places_and_whitespace_does_not() -> None:
    text = " a bb\t\tccc d \r\n e"
    found = shuffled_words(text, 7)
    assert found == shuffled_words(text, 7) == " d e\t\ta ccc \r\n bb"  # stored: it is so on every machine
    assert len({shuffled_words("a b c", key) for key in range(99)}) == 6
    assert shuffled_words("", 7) == "" and shuffled_words(" one ", 7) == " one "


@pytest.mark.parametrize("size", [1, 3, 100])
def test_words_stay_in_their_line_however_a_text_is_read(size: int) -> None:
    text = "a b c d\n\ne f g\r\nh i"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = "".join(shuffled_lines(pieces, 3, 0)).split("\n")
    assert lines == [shuffled_words(line, 3, 0, number) for number, line in enumerate(text.split("\n"))]
    assert lines != text.split("\n")


@pytest.fixture
def labelled(tmp_path: Path) -> Callable[..., LabelledTextDataModule]:
    path = tmp_path / "x.csv"
    path.write_text("label,text\n" + "".join(f"{row % 2},{text}\n" for row, text in enumerate(TEXTS)))
    return lambda **options: LabelledTextDataModule(
        str(path), **{"val": str(path), "test": str(path), "max_len": 9, "max_tokens": 20, **options}
    )


@pytest.fixture
def parallel(tmp_path: Path) -> Callable[..., ParallelTextDataModule]:
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"{text.replace(chr(9), ' ')}\tle chat {row} chasse\n" for row, text in enumerate(TEXTS)))
    return lambda **options: ParallelTextDataModule(
        str(path), **{"val": str(path), "source_tokenizer": WordTokenizer, "max_len": 12, "max_tokens": 30, **options}
    )


def test_labelled_texts_are_shuffled_and_all_else_stays(labelled: Callable[..., LabelledTextDataModule]) -> None:
    natural, shuffled, other = labelled(), labelled(word_order="shuffled"), labelled(word_order="shuffled", seed=1)
    before, after, again = (data.rows("val").read(np.arange(40)) for data in (natural, shuffled, other))
    assert natural.tokenizer.to_dict() == shuffled.tokenizer.to_dict()
    assert torch.equal(before.targets, after.targets) and torch.equal(before.pad_mask, after.pad_mask)
    assert not torch.equal(before.inputs, after.inputs) and not torch.equal(after.inputs, again.inputs)
    assert torch.equal(before.inputs.sort()[0], after.inputs.sort()[0])
    decode = natural.tokenizer.decode
    for row, text in enumerate(TEXTS):
        assert decode(after.inputs[row].tolist()).split() == shuffled_words(text, 0, 1, row).split()
    assert len({tuple(decode(ids).split().index("chased") for ids in [row]) for row in after.inputs.tolist()}) > 3
    assert torch.equal(labelled().rows("val").read(np.arange(40)).inputs, before.inputs), "the cache has both"
    assert natural.describe()["digest"] != shuffled.describe()["digest"] == other.describe()["digest"]


def test_sources_are_shuffled_and_targets_are_not(parallel: Callable[..., ParallelTextDataModule]) -> None:
    for of in (WordTokenizer, None):  # two tokenizers, or one of both sides
        natural, shuffled = (parallel(target_tokenizer=of, word_order=order) for order in ("natural", "shuffled"))
        before, after = (data.rows("val").read(np.arange(40)) for data in (natural, shuffled))
        assert torch.equal(before.targets, after.targets) and torch.equal(before.tokens, after.tokens)
        assert natural.references("val") == shuffled.references("val")
        assert torch.equal(before.source[:, -1], after.source[:, -1]), "eos is no word"
        assert not torch.equal(before.source, after.source)
        assert torch.equal(before.source.sort()[0], after.source.sort()[0])
        assert natural.source_tokenizer.to_dict() == shuffled.source_tokenizer.to_dict()


def test_tokenizers_learn_from_the_text_as_it_is(
    labelled: Callable[..., LabelledTextDataModule], parallel: Callable[..., ParallelTextDataModule]
) -> None:
    seen: list[str] = []

    def spy(text: str) -> WordTokenizer:
        seen.append(text)
        return WordTokenizer(text)

    labelled(tokenizer=spy, word_order="shuffled").setup("fit")
    parallel(source_tokenizer=spy, target_tokenizer=WordTokenizer, word_order="shuffled").setup("fit")
    parallel(source_tokenizer=spy, word_order="shuffled").setup("fit")
    assert seen[0].split("\n") == TEXTS
    assert all(text.split("\n")[:40] == [line.replace("\t", " ") for line in TEXTS] for text in seen[1:])


def test_the_order_is_of_workers_ranks_and_resumes_alike(
    labelled: Callable[..., LabelledTextDataModule], parallel: Callable[..., ParallelTextDataModule]
) -> None:
    check_order(partial(labelled, word_order="shuffled"), 40)
    check_order(partial(parallel, word_order="shuffled"), 40)


@pytest.mark.parametrize("tokenizer", [CharTokenizer, WordTokenizer, partial(SubwordTokenizer, vocab_size=290)])
def test_lines_of_a_text_are_shuffled_after_it_is_cut(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_corpora_in_given_shares_are_shuffled_too(tmp_path: Path) -> None:
    for name in ("web", "books"):
        (tmp_path / name).write_text(f"{name} has some words of its own\n" * 50)
    path: Any = {name: str(tmp_path / name) for name in ("web", "books")}
    options: dict[str, Any] = {"mixture": {"web": 0.5, "books": 0.5}, "tokenizer": ByteTokenizer, "seq_len": 64}
    read = [
        TextDataModule(path, word_order=order, **options).rows("train").read(np.arange(20)).tokens
        for order in ("natural", "shuffled")
    ]
    assert not torch.equal(*read)


@pytest.mark.parametrize("make", [LabelledTextDataModule, ParallelTextDataModule, TextDataModule])
def test_another_order_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"data\.word_order must be natural or shuffled, got sorted"):
        make(train="x", word_order="sorted")
