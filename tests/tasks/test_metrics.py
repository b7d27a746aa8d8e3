"""Language-modelling metrics and means by length, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from seqlab.tasks.metrics import EACH, RANGES, LanguageModelingMetrics, Mean, MeanByLength


def updated(*updates: tuple[float, ...]) -> LanguageModelingMetrics:
    """Metrics of nats, tokens, characters, right tokens, and bytes and words where they are known."""
    metrics = LanguageModelingMetrics()
    for numbers in updates:
        metrics.update(*map(torch.tensor, numbers))
    return metrics


def computed(metric: MeanByLength) -> dict[str, float]:
    return {name: value.item() for name, value in metric.compute().items()}


def test_by_hand() -> None:
    """4 + 12 bits over 8 tokens, 20 characters, 32 bytes and 4 words; 3 were right. What nobody knows has no score."""
    several = ((4 * math.log(2), 4, 8, 2, 20, 1), (4 * math.log(8), 4, 12, 1, 12, 3))
    expected = {"loss": 2 * math.log(2), "perplexity": 4, "bits_per_char": 16 / 20, "accuracy": 3 / 8}
    of_text = {"bits_per_byte": 16 / 32, "word_perplexity": 2 ** (16 / 4)}
    metrics = updated(*several)
    assert {name: value.item() for name, value in metrics.compute().items()} == pytest.approx(expected | of_text)
    metrics.reset()
    for numbers in several:
        metrics.update(*map(torch.tensor, numbers[:4]))
    assert {name: value.item() for name, value in metrics.compute().items()} == pytest.approx(expected)


def test_sums_are_float64() -> None:
    """In float32, 2^24 and then ones would stand still; in bfloat16 2^8."""
    metrics = updated((2.0**24, 2**24, 2**24, 0), *[(1.0, 1, 1, 0)] * 8)
    assert metrics.nats.item() == metrics.num_tokens.item() == metrics.num_chars.item() == 2**24 + 8
    mean = Mean()
    for numbers in (torch.tensor([2.0**24]), torch.ones(2**8, dtype=torch.bfloat16), *[torch.ones(1)] * 7):
        mean.update(numbers)
    assert mean.total.item() == 2**24 + 2**8 + 7
    assert mean.compute().item() == (2**24 + 2**8 + 7) / (2**8 + 8)


def test_sums_stay_float64_in_a_half_precision_module() -> None:
    module = torch.nn.Module()
    module.metrics = LanguageModelingMetrics()
    module.half()
    module.metrics.update(*map(torch.tensor, (4097.0, 4097, 4097, 0)))
    assert module.metrics.nats.dtype == torch.float64 and module.metrics.nats.item() == 4097


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
    assert computed(metric) == pytest.approx({"loss/1-8": 2 / 3, "loss/9-16": 5.0, "loss/over 1024": 0.0})
    each = MeanByLength("loss", EACH)
    each.update(torch.tensor([1.0, 0.0, 5.0, 3.0, 7.0]), torch.tensor([1, 8, 9, 8, 2000]))
    assert computed(each) == {"loss/1": 1.0, "loss/8": 1.5, "loss/9": 5.0, "loss/over 1024": 7.0}
    metric.reset()
    metric.update(torch.tensor([3.0]), torch.tensor([16]))
    assert metric.compute() == {"loss/9-16": 3.0}


def test_sums_are_those_of_all_devices() -> None:
    one, other = MeanByLength("loss"), MeanByLength("loss")
    one.update(torch.tensor([1.0, 2.0]), torch.tensor([5, 20]))
    other.update(torch.tensor([4.0]), torch.tensor([6]))
    one.merge_state(other)
    assert computed(one) == {"loss/1-8": 2.5, "loss/17-32": 2.0}
