"""The measure of `order`, on models whose answer is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab import positions
from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.models import DecoderLM, Encoder, MaskedLM
from seqlab.studies.order import BLIND, SEES, Order
from seqlab.studies.order_effects import VOCAB, Model, at_last, of_trained


def counted(weights: Tensor) -> Model:
    """The sum of one-hot tokens, each times the weight (T,) of its place."""
    return lambda tokens: (torch.nn.functional.one_hot(tokens, VOCAB) * weights[:, None]).cumsum(1).double()


def test_a_sum_is_blind_and_a_weighted_sum_is_not() -> None:
    torch.manual_seed(0)
    assert at_last(counted(torch.ones(16, dtype=torch.float64))) == 0
    assert 0.3 < at_last(counted(torch.arange(16, dtype=torch.float64))) < 1.5
    little = torch.ones(16, dtype=torch.float64)
    little[3] += 1e-6
    assert 1e-8 < at_last(counted(little)) < 1e-5


def masked(encoding: Any) -> MaskedLM:
    mixer = lambda width, layer: Attention(width, layer, pattern=Bidirectional)  # noqa: E731
    return MaskedLM(
        20, 16, encoder=lambda v, t: Encoder(v, t, mixer=mixer, d_model=16, num_layers=2, positions=encoding)
    )


def test_trained_models_are_measured_alike_and_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "blind": masked(positions.NoPositions),
        "told": masked(positions.Sinusoidal),
        "1 deep": DecoderLM(20, 16, d_model=16, num_layers=1, positions=positions.NoPositions),
        "2 deep": DecoderLM(20, 16, d_model=16, num_layers=2, positions=positions.NoPositions),
    }
    for model in models.values():
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        model.eval()
    loaded = lambda name: SimpleNamespace(model=models[name], tokenizer=SimpleNamespace(vocab_size=20))  # noqa: E731
    monkeypatch.setattr("seqlab.studies.order_effects.load_run", loaded)
    runs: Any = {name: SimpleNamespace(id=name) for name in models}
    with torch.no_grad():
        found = dict(of_trained(runs))
    assert found["blind"] < BLIND and found["1 deep"] < BLIND
    assert found["told"] > SEES and found["2 deep"] > SEES


def test_each_trained_case_has_an_arm() -> None:
    study = Order()
    fitted = {arm.name for arm in study.arms("cpu")}
    cases = {name for claim in study.claims if claim.key.endswith("-trained") for name in claim.cases}
    assert cases < fitted and fitted - cases == {"GRU, trained"}
