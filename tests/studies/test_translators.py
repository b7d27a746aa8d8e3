"""Measurements of writers whose answer is known: by length, after their own errors, on joined and shuffled texts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab.attention import AdditiveAttention
from seqlab.study.rules import Verdict, judge
from seqlab_data.generated import Draw
from seqlab_data.tokenizers import WordTokenizer
from seqlab_studies import bottleneck, joined, shuffled
from seqlab_studies.bottleneck import (
    ANEW,
    BEYOND,
    HALF,
    ONE_IN_FOUR,
    OTHERS,
    TWELVE,
    WITHIN,
    first,
    growths,
    held,
    one_in_four_lost,
)
from seqlab_studies.exposure import WRONG, Planted, gap, planted_batch, spelt, thrown
from seqlab_studies.joined import ENCODINGS, JOINED, OF_ANOTHER, ONE_BY_ONE, Joined, compared
from seqlab_studies.lib.copying import bleu, sentences
from seqlab_studies.lib.translations import translate
from seqlab_studies.look_up import drawn, not_convex, of_memory

LENGTHS = range(4, 13)


def test_sentences_are_decided_by_their_seed_and_have_their_lengths() -> None:
    texts = sentences([4, 6], 40, seed=3)
    assert texts == sentences([4, 6], 40, seed=3) != sentences([4, 6], 40, seed=4)
    assert {len(text.split()) for text in texts} == {4, 6}


def test_the_planted_writers_lose_by_length_and_alike() -> None:
    texts = {length: sentences([length], 20, seed=0) for length in LENGTHS}
    alike = [bleu(one_in_four_lost(some), some) for some in texts.values()]
    assert alike == pytest.approx([75] * len(LENGTHS))
    by_length = [bleu([first(6, text) for text in some], some) for some in texts.values()]
    assert by_length[:3] == pytest.approx([100] * 3) and by_length == sorted(by_length, reverse=True)
    assert by_length[-1] == pytest.approx(100 * math.prod((6 - n) / (12 - n) for n in range(4)) ** 0.25)


def test_growth_is_that_of_the_lead() -> None:
    attention, tested = bottleneck.ATTENTION, {WITHIN: range(4, 13), BEYOND: range(12, 21)}
    line = {length: 100.0 - 3 * length for length in range(4, 21)}
    flat = dict.fromkeys(line, 90.0)
    far = {length: 140.0 - 5 * length for length in line}
    scores = {bottleneck.NONE: line, attention: flat, bottleneck.FIRST: line, ONE_IN_FOUR: flat, OTHERS: line}
    scores |= {TWELVE: far, ANEW: line}
    found = growths(scores, tested)
    assert found[f"{attention}, {WITHIN}"] == pytest.approx(3) == found[bottleneck.FIRST]
    assert found[f"{attention} alone, {BEYOND}"] == pytest.approx(0) == found[ONE_IN_FOUR]
    assert found[attention] == pytest.approx(90) and found[OTHERS] == pytest.approx(76)
    assert math.isnan(found["twice the vector"])
    assert found[TWELVE] == pytest.approx(18 / (50 / 3)) and found[ANEW] == 1
    found = growths(scores | {HALF: {n: 100.0 - 6 * n for n in line}}, tested)
    assert found["twice the vector"] == pytest.approx(2)


def test_the_length_that_is_copied_to_half() -> None:
    assert held({4: 90.0, 5: 60.0, 6: 40.0, 7: 55.0}) == 5.5 and held({4: 50.0, 5: 0.0}) == 4
    assert math.isnan(held({4: 49.0, 5: 0.0})) and math.isnan(held({4: 90.0, 5: 50.0}))
    texts = {length: sentences([length], 200, seed=0) for length in range(4, 25)}
    kept = [{n: bleu([first(count, text) for text in some], some) for n, some in texts.items()} for count in (6, 12)]
    assert held(kept[1]) / held(kept[0]) == pytest.approx(2, abs=0.25)


class Leaky(AdditiveAttention):
    """Shows weights that sum to 1, and looks at the memory with less."""

    def _next(self, x_t: Tensor, h: Tensor, state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return super()._next(x_t, h, state | {"memory_v": state["memory_v"] / state["memory_v"].shape[1]})


@torch.no_grad()
def test_a_layer_is_asked_and_not_only_the_weights_that_it_shows() -> None:
    torch.manual_seed(0)
    assert not_convex(torch.tensor([[[[0.5, 0.4]]]])) == pytest.approx(0.1)
    assert not_convex(torch.tensor([[[[1.25, -0.25]]]])) == pytest.approx(0.25)
    assert of_memory(drawn(AdditiveAttention)) < 1e-12
    assert of_memory(drawn(Leaky)) > 1e-3


def test_a_writer_that_does_not_look_back_has_no_gap() -> None:
    texts = sentences([10], 400, seed=0)
    assert spelt(planted_batch(texts).targets) == texts
    found, tokens = gap(Planted(lost=False, seed=0), planted_batch(texts), words=10)
    assert found == [0.0] * 10
    assert 0.07 < (tokens != planted_batch(texts).targets).float().mean() < 0.13


RIGHT, WRONG_WORD = math.log(15 + math.exp(4)) - 4, math.log(14 + math.exp(4) + math.exp(5)) - 4
KNOWN = 0.9 * RIGHT + 0.1 * WRONG_WORD
"""Nats of a lost writer's next word, after the right word, after a wrong one, and as often as it writes them."""


def test_a_lost_writer_has_the_gap_of_its_errors_so_far() -> None:
    batch = planted_batch(sentences([10], 4000, seed=0))
    found, _ = gap(Planted(lost=True, seed=0), batch, words=10)
    expected = [(1 - 0.9**t) * (math.log(16) - KNOWN) for t in range(10)]
    assert found[0] == 0 and found == pytest.approx(expected, abs=0.08)
    assert torch.tensor(found).diff().min() > 0


def test_one_wrong_word_throws_only_a_writer_that_looks_back() -> None:
    batch = planted_batch(sentences([10], 4000, seed=0))
    assert thrown(Planted(lost=False, seed=0), batch, words=10) == [0.0] * (10 - WRONG)
    expected = [math.log(16) - KNOWN] * (10 - WRONG)
    assert thrown(Planted(lost=True, seed=0), batch, words=10) == pytest.approx(expected, abs=0.08)


LINES = [" ".join("abcdefghij"[word] for word in Draw(0, line).integers(10, 8)) for line in range(48)]


def lines(count: int) -> list[str]:
    return joined.joined(LINES, count)


def halved(texts: Sequence[str]) -> list[str]:
    return [" ".join(text.split()[: len(text.split()) // 2]) for text in texts]


JOINTLY = {n: lines(n) for n in JOINED}
TIRED = {n: lines(n) if n == 1 else halved(lines(n)) for n in JOINED}


def judged(none: Any, encodings: Any) -> dict[str, Verdict]:
    measured = compared({joined.NONE: none} | dict.fromkeys(ENCODINGS, encodings), LINES)
    values = {name: [value] * 3 for name, value in measured.values.items()}
    return {claim.key: judge(claim, values).verdict for claim in Joined.claims}


def test_sentences_are_joined_whole_and_in_order() -> None:
    assert joined.joined(["a b", "c", "d", "e"], 2) == ["a b c", "d e"]
    assert all(" ".join(lines(n)) == " ".join(LINES) for n in JOINED)


def test_verdicts_of_one_that_tires_and_of_one_that_does_not() -> None:
    assert judged(TIRED, JOINTLY) == {"collapses": Verdict.SUPPORTED, "any-length": Verdict.SUPPORTED}
    assert judged(JOINTLY, TIRED) == {"collapses": Verdict.REFUTED, "any-length": Verdict.REFUTED}
    nothing = {n: ["?" for _ in JOINTLY[n]] for n in JOINED}
    assert judged(nothing, JOINTLY)["collapses"] == Verdict.INVALID


def test_controls_by_hand() -> None:
    values = compared({joined.NONE: JOINTLY} | dict.fromkeys(ENCODINGS, JOINTLY), LINES).values
    assert values[joined.NONE] == values[ONE_BY_ONE] == pytest.approx(1)
    assert values[joined.FIRST] < 0.2, "one in four words, and the penalty for what is short"
    assert values[f"{OF_ANOTHER}, single"] < 10


def test_a_text_is_read_whole_and_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = WordTokenizer("\n".join(LINES))
    loaded: Any = SimpleNamespace(source_tokenizer=tokenizer)

    def copy(_: Any, source: Tensor, mask: Tensor) -> list[str]:
        assert mask.sum() < mask.numel()
        return [tokenizer.decode(row[seen][:-1].tolist()) for row, seen in zip(source, mask, strict=True)]

    monkeypatch.setattr("seqlab_studies.lib.translations.write", copy)
    texts = [LINES[0], *lines(3)[:2], "a"]
    assert translate(loaded, texts) == texts


REVIEWS = [
    f"{label} {'good' if label else 'bad'} it was {'very ' * (place % 5)}so" for place in range(60) for label in (0, 1)
]


class Says:
    """The class by good or bad, whose ids are told, among the first so many words; the next word is the last one."""

    def __init__(self, first: int, told: list[int]) -> None:
        self.first, self.told = first, told

    def __call__(self, tokens: Tensor, pad_mask: Tensor | None = None) -> Any:
        if pad_mask is None:
            return one_hot(tokens, 5).float(), None
        seen = tokens.masked_fill(~pad_mask, -1)[:, : self.first]
        return torch.stack([(seen == word).sum(1).float() for word in self.told], dim=1)


def run_on(model: Any, name: str, **options: Any) -> Any:
    """A stand-in for a run of such a model on such data."""
    return SimpleNamespace(model=model, config={"data": {"class_path": name, "init_args": options}})


def test_a_bag_loses_nothing_and_who_reads_the_first_word_does(tmp_path: Path) -> None:
    path = tmp_path / "x.train"
    path.write_text("".join(f"{line}\n" for line in REVIEWS))
    options = {"train": str(path), "val": str(path), "test": str(path)}
    data, batch = shuffled.read(run_on(None, "LabelledTextDataModule", **options), "val", "natural", 0)
    assert [data.tokenizer.decode(ids) for ids in batch.inputs[:2, :3].tolist()] == ["bad it was", "good it was"]
    told = data.tokenizer.encode("bad good")
    bag = shuffled.sentiment(run_on(Says(64, told), "LabelledTextDataModule", **options), 0, random.Random(0))
    assert bag["as it is"] == bag["shuffled"] == 1 and 0.3 < bag["another"] < 0.7
    first = shuffled.sentiment(run_on(Says(1, told), "LabelledTextDataModule", **options), 0, random.Random(0))
    assert first["as it is"] == 1 and first["shuffled"] < 0.9
    assert shuffled.share(bag["shuffled"], bag["another"], bag["as it is"]) == 1
    assert abs(shuffled.share(bag["a third"], bag["another"], bag["as it is"])) < 0.35


def test_who_copies_a_source_loses_its_order_and_who_sorts_it_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tsv"
    drawn = [random.Random(row).sample("abcdefghijklm", 6) for row in range(50)]
    path.write_text("".join(f"{' '.join(words)}\t{' '.join(words)}\t{' '.join(sorted(words))}\n" for words in drawn))
    tokenizer = {"class_path": "WordTokenizer"}
    options = {"train": str(path), "val": str(path), "test": str(path), "source_tokenizer": tokenizer}
    loaded = run_on(None, "ParallelTextDataModule", **options)
    data, _ = shuffled.read(loaded, "test", "natural", 0)
    words = lambda source: [data.source_tokenizer.decode(row[:-1]).split() for row in source.tolist()]  # noqa: E731
    monkeypatch.setattr(shuffled, "write", lambda _, source, mask: [" ".join(one) for one in words(source)])
    copied = shuffled.translation(loaded, 0, random.Random(0))
    assert copied["as it is"] == pytest.approx(100) and copied["shuffled"] < 40 and copied["another"] < 20
    monkeypatch.setattr(shuffled, "write", lambda _, source, mask: [" ".join(sorted(one)) for one in words(source)])
    bag = shuffled.translation(loaded, 0, random.Random(0))
    assert bag["as it is"] == bag["shuffled"] == pytest.approx(100) and bag["another"] < 20


def test_the_next_word_by_the_last_one() -> None:
    """In windows of one word each, whose order tells nothing."""
    held = 250
    words = [word for word in random.Random(0).choices("abcde", k=held) for _ in range(shuffled.CONTEXT + 1)]
    loaded: Any = SimpleNamespace(
        model=Says(1, []), tokenizer=SimpleNamespace(encode=lambda text: ["abcde".index(letter) for letter in text])
    )
    text = "".join(words)
    found = shuffled.next_word(loaded, text * 10, random.Random(0))
    assert found["as it is"] == pytest.approx(found["shuffled"])
    assert found["another"] > found["as it is"] + 0.3
    mixed = "".join(random.Random(1).sample(words, len(words)))
    again = shuffled.next_word(loaded, mixed * 10, random.Random(0))
    assert again["as it is"] == pytest.approx(again["another"], abs=0.2)
