"""Language-modelling metrics and means by length, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from seqlab.tasks.metrics import EACH, RANGES, LanguageModelingMetrics, MeanByLength


def _update(metrics: LanguageModelingMetrics, nats: float, num_tokens: int, num_chars: int, num_right: int = 0) -> None:
    metrics.update(*map(torch.tensor, (nats, num_tokens, num_chars, num_right)))


def test_by_hand() -> None:
    """Four tokens guessed among two and four among eight: 4 + 12 bits over 8 tokens and 20 characters; 3 were right."""
    metrics = LanguageModelingMetrics()
    _update(metrics, 4 * math.log(2), 4, 8, 2)
    _update(metrics, 4 * math.log(8), 4, 12, 1)
    result = metrics.compute()
    assert result["loss"].item() == pytest.approx(2 * math.log(2), rel=1e-6)
    assert result["perplexity"].item() == pytest.approx(4, rel=1e-6)
    assert result["bits_per_char"].item() == pytest.approx(16 / 20, rel=1e-6)
    assert result["accuracy"].item() == 3 / 8


def test_text_by_hand() -> None:
    """16 bits over 32 bytes and 4 words; an amount that nobody knows has no score."""
    metrics = LanguageModelingMetrics()
    metrics.update(*map(torch.tensor, (10 * math.log(2), 4, 8, 2, 20, 1)))
    metrics.update(*map(torch.tensor, (6 * math.log(2), 4, 12, 1, 12, 3)))
    result = metrics.compute()
    assert result["bits_per_byte"].item() == pytest.approx(16 / 32, rel=1e-6)
    assert result["word_perplexity"].item() == pytest.approx(2 ** (16 / 4), rel=1e-6)
    metrics.reset()
    _update(metrics, 1.0, 1, 1)
    assert set(metrics.compute()) == {"loss", "perplexity", "accuracy", "bits_per_char"}


def test_it_is_the_corpus_that_counts_not_the_mean_of_batches() -> None:
    metrics = LanguageModelingMetrics()
    _update(metrics, 10.0, 1, 1)
    _update(metrics, 0.0, 99, 99)
    assert metrics.compute()["loss"].item() == pytest.approx(0.1)


def test_sums_are_float64() -> None:
    """In float32, 2^24 and then ones would stand still."""
    metrics = LanguageModelingMetrics()
    _update(metrics, 2.0**24, 2**24, 2**24)
    for _ in range(8):
        _update(metrics, 1.0, 1, 1)
    assert metrics.nats.item() == 2**24 + 8
    assert metrics.num_tokens.item() == metrics.num_chars.item() == 2**24 + 8


def test_sums_stay_float64_in_a_half_precision_module() -> None:
    module = torch.nn.Module()
    module.metrics = LanguageModelingMetrics()
    module.half()
    _update(module.metrics, 4097.0, 4097, 4097)
    assert module.metrics.nats.dtype == torch.float64
    assert module.metrics.nats.item() == 4097


def test_reset_forgets() -> None:
    metrics = LanguageModelingMetrics()
    _update(metrics, 5.0, 1, 1)
    metrics.reset()
    _update(metrics, 1.0, 1, 2)
    assert metrics.compute()["loss"].item() == 1.0


def test_every_length_is_in_the_bucket_that_names_it() -> None:
    for length in range(1, 1100):
        name, own = (of.names[int(of.places(torch.tensor([length])))] for of in (RANGES, EACH))
        low, high = (1025, 10**9) if name == "over 1024" else map(int, name.split("-"))
        assert low <= length <= high
        assert own == (f"{length}" if length <= 1024 else name)


def test_means_by_hand_and_empty_buckets_are_left_out() -> None:
    metric = MeanByLength("loss")
    metric.update(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([1, 8, 9]))
    metric.update(torch.tensor([True, False]), torch.tensor([3, 2000]))
    found = {name: value.item() for name, value in metric.compute().items()}
    assert found == pytest.approx({"loss/1-8": 2 / 3, "loss/9-16": 5.0, "loss/over 1024": 0.0})
    each = MeanByLength("loss", EACH)
    each.update(torch.tensor([1.0, 0.0, 5.0, 3.0, 7.0]), torch.tensor([1, 8, 9, 8, 2000]))
    assert {name: value.item() for name, value in each.compute().items()} == {
        "loss/1": 1.0,
        "loss/8": 1.5,
        "loss/9": 5.0,
        "loss/over 1024": 7.0,
    }
    metric.reset()
    metric.update(torch.tensor([3.0]), torch.tensor([16]))
    assert metric.compute() == {"loss/9-16": 3.0}


def test_sums_are_those_of_all_devices() -> None:
    one, other = MeanByLength("loss"), MeanByLength("loss")
    one.update(torch.tensor([1.0, 2.0]), torch.tensor([5, 20]))
    other.update(torch.tensor([4.0]), torch.tensor([6]))
    one.merge_state(other)
    assert {name: value.item() for name, value in one.compute().items()} == {"loss/1-8": 2.5, "loss/17-32": 2.0}
