"""Measurements on shuffled words, with models whose answer is known."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies import shuffled

LINES = [
    f"{label} {'good' if label else 'bad'} it was {'very ' * (place % 5)}so" for place in range(60) for label in (0, 1)
]


class Says:
    """The class by good or bad, whose ids are told, among the first so many words; the next word is the last one."""

    def __init__(self, first: int, told: list[int]) -> None:
        self.first, self.told = first, told

    def __call__(self, tokens: Tensor, pad_mask: Tensor | None = None) -> Any:
        if pad_mask is None:
            return torch.nn.functional.one_hot(tokens, 5).float(), None
        seen = tokens.masked_fill(~pad_mask, -1)[:, : self.first]
        return torch.stack([(seen == word).sum(1).float() for word in self.told], dim=1)


def run_on(model: Any, name: str, **options: Any) -> Any:
    """A stand-in for a run of such a model on such data."""
    return SimpleNamespace(model=model, config={"data": {"class_path": name, "init_args": options}})


def test_a_bag_loses_nothing_and_who_reads_the_first_word_does(tmp_path: Path) -> None:
    path = tmp_path / "x.train"
    path.write_text("".join(f"{line}\n" for line in LINES))
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
