"""Several corpora in given shares: exact in each epoch, each corpus in passes, resumed, and refused in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.helpers import refused
from data.modules import SHARES, mixture
from seqlab.cli import main
from seqlab_data import TextDataModule
from seqlab_data.mixture import JoinedWindows, mixed_order
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer

Make = Callable[..., TextDataModule]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return partial(mixture, tmp_path)


@given(
    sizes=st.lists(st.integers(1, 150), min_size=2, max_size=4),
    weights=st.lists(st.integers(1, 1000), min_size=4, max_size=4),
)
def test_an_epoch_has_each_share_to_within_a_window_and_passes_are_whole(sizes: list[int], weights: list[int]) -> None:
    shares = [weight / sum(weights[: len(sizes)]) for weight in weights[: len(sizes)]]
    total, ends = sum(sizes), np.cumsum(sizes)
    seen: list[Counter[int]] = [Counter() for _ in sizes]
    orders = [mixed_order(sizes, shares, total, 3, epoch) for epoch in range(4)]
    for order in orders:
        assert len(order) == total
        number = np.searchsorted(ends, order, side="right")
        for k, share in enumerate(shares):
            assert abs(int((number == k).sum()) - share * total) <= 1
            seen[k].update(order[number == k].tolist())
            often = [seen[k][i] for i in range(ends[k] - sizes[k], ends[k])]
            assert max(often) - min(often) <= 1, "none comes again before all have come as often"
    assert total < 12 or not np.array_equal(orders[0], orders[1])


def test_it_is_of_these_corpora_by_one_tokenizer(make: Make, tmp_path: Path) -> None:
    data = make()
    data.setup("fit")
    assert isinstance(data.tokenizer, CharTokenizer) and data.tokenizer.alphabet == "bcwxyz"
    letters = Counter(
        data.tokenizer.decode(row)[:8] for batch in data.train_dataloader() for row in batch.tokens.tolist()
    )
    counts = {name: sum(n for text, n in letters.items() if name[0] in text) for name in SHARES}
    total = sum(counts.values())
    assert all(abs(counts[name] - share * total) <= 1 for name, share in SHARES.items())
    described = data.describe()
    assert described["source"].startswith("web: /") and "; books: /" in described["source"]
    alone = [make(str(path), mixture=None, tokenizer=ByteTokenizer) for path in tmp_path.glob("*.txt")]
    for split, amounts in described["splits"].items():
        assert amounts == {unit: sum(one.describe()["splits"][split][unit] for one in alone) for unit in amounts}


def test_windows_of_several_corpora_are_read_as_of_each(make: Make) -> None:
    rows = make().rows("val")
    assert isinstance(rows, JoinedWindows)
    indices = np.random.default_rng(0).integers(len(rows), size=50)
    batch = rows.read(indices)
    assert batch.rows is not None and batch.rows.tolist() == indices.tolist()
    parts = [(part, i) for part in rows.parts for i in range(len(part))]
    for row, index in enumerate(indices):
        part, i = parts[index]
        alone = part.read(np.array([i]))
        for whole, one in zip(batch[:5], alone[:5], strict=True):
            assert whole is not None and one is not None and torch.equal(whole[row : row + 1], one)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mixture": None}, r"share to each corpus .*; got shares of none and paths of web, books, code"),
        ({"mixture": {"web": 0.7, "book": 0.3}}, r"share to each corpus .*; got shares of web, book and paths of web"),
        ({"path": "x.txt"}, r"share to each corpus .*; got shares of web, books, code and paths of none"),
        ({"mixture": {**SHARES, "web": 0.6}}, r"data\.mixture must be positive shares that sum to 1, got .*0\.6"),
        ({"mixture": {**SHARES, "web": float("nan")}}, r"data\.mixture must be positive shares that sum to 1"),
        ({"mixture": {"web": 1.1, "books": -0.2, "code": 0.1}}, r"data\.mixture must be positive shares"),
        ({"packing": "documents"}, r"data\.packing documents takes one corpus, without a data\.mixture"),
        ({"packing": "packed"}, r"data\.packing packed takes one corpus, without a data\.mixture"),
        ({"path": {}, "mixture": {}}, r"got shares of none and paths of none"),
        ({"path": None, "train": "x.txt"}, r"got shares of web, books, code and paths of none"),
    ],
)
def test_what_is_no_mixture_is_refused(make: Make, options: dict[str, Any], message: str) -> None:
    with refused(message):
        make(**options)


def test_a_corpus_that_is_too_short_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "code.txt").write_text("short")
    with refused(r"train split begins at .*code\.txt, line 1 and has 4 tokens"):
        make().setup("fit")


def test_a_tokenizer_of_changed_text_is_not_kept(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make()  # writes the corpora
    before, learn = (tmp_path / "web.txt").read_text(), CharTokenizer.learn

    def changes(texts: Iterable[str]) -> CharTokenizer:
        (tmp_path / "web.txt").write_text("v" + before[1:])
        return learn(texts)

    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"web\.txt.* changed while it was read"):
        patch.setattr(CharTokenizer, "learn", changes)
        make().setup("fit")
    (tmp_path / "web.txt").write_text(before)
    assert getattr(make().tokenizer, "alphabet", "") == "bcwxyz"


@pytest.mark.slow
def test_it_is_fitted_and_tested_by_corpus(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make()
    monkeypatch.chdir(tmp_path)
    mixture = ["--data.path", "{web: web.txt, books: books.txt}", "--data.mixture", "{web: 0.7, books: 0.3}"]
    small = ["--data.seq_len", "16", "--model.model.d_model", "8", "--trainer.max_steps", "1"]
    assert main(["fit", "--config", "lm/gru", *mixture, *small, "--run_name", "mixed"]) == 0
    assert main(["test", "mixed", "--data.path", "books.txt", "--data.mixture", "null"]) == 0
    assert main(["test", "mixed", "--data.path", "books.txt"]) == 2
    assert "got shares of web, books and paths of none" in capsys.readouterr().err
