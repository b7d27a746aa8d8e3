"""What is measured of shuffled words, on models whose answer is known."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies import shuffled
from seqlab.tracking.runs import TrackedRun

WORDS = ["bad", "good", "it", "was", "very"]
LINES = [
    f"{label} {'good' if label else 'bad'} it was {'very ' * (place % 5)}" for place in range(60) for label in (0, 1)
]
RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]


class Says:
    """The class by good or bad among the first so many words; the next word is the last one."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, tokens: Tensor, pad_mask: Tensor | None = None) -> Any:
        if pad_mask is None:
            return torch.nn.functional.one_hot(tokens, len(WORDS)).float(), None
        seen = tokens.masked_fill(~pad_mask, 2)[:, : self.first]
        return torch.stack([(seen == label).sum(1).float() for label in (0, 1)], dim=1)


def load(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    tokenizer = SimpleNamespace(encode=lambda text: [WORDS.index(word) for word in text.split()])
    loaded = SimpleNamespace(
        labels=["0", "1"], task=SimpleNamespace(seq_len=64), tokenizer=tokenizer, model=Says(first)
    )
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)


def test_a_bag_loses_nothing_and_who_reads_the_first_word_does(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, 64)
    bag = shuffled.sentiment(RUN, LINES, random.Random(0))
    assert bag["as it is"] == bag["shuffled"] == 1 and 0.3 < bag["another"] < 0.7
    load(monkeypatch, 1)
    first = shuffled.sentiment(RUN, LINES, random.Random(0))
    assert first["as it is"] == 1 and first["shuffled"] < 0.9
    assert shuffled.share(bag["shuffled"], bag["another"], bag["as it is"]) == 1
    assert abs(shuffled.share(bag["a third"], bag["another"], bag["as it is"])) < 0.35


def test_the_next_word_by_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of one word each, whose order tells nothing."""
    load(monkeypatch, 1)
    held = 250
    words = [word for word in random.Random(0).choices("abcde", k=held) for _ in range(shuffled.CONTEXT + 1)]
    loaded = SimpleNamespace(
        model=Says(1), tokenizer=SimpleNamespace(encode=lambda text: ["abcde".index(letter) for letter in text])
    )
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)
    text = "".join(words)
    found = shuffled.next_word(RUN, [text * 10], random.Random(0))
    assert found["as it is"] == pytest.approx(found["shuffled"])
    assert found["another"] > found["as it is"] + 0.3
    mixed = "".join(random.Random(1).sample(words, len(words)))
    again = shuffled.next_word(RUN, [mixed * 10], random.Random(0))
    assert again["as it is"] == pytest.approx(again["another"], abs=0.2)
