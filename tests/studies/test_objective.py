"""Measurements of the two objectives, and of the order of tokens, on models whose answer is known."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab import positions
from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.models import DecoderLM, Encoder, MaskedLM
from seqlab_studies import objective
from seqlab_studies.lib.order_effects import (
    LENGTH,
    VOCAB,
    WINDOW,
    Model,
    after_place,
    at_last,
    before_window,
    of_trained,
    reversed_window,
)
from seqlab_studies.objective import CONTEXT, MANY, NAMES, TESTED
from seqlab_studies.order import BLIND, SEES, Order

SIZE, MASK = 7, 7
WINDOWS = torch.arange(40).unsqueeze(1).add(torch.arange(CONTEXT)).remainder(SIZE)
"""Each character is one more than that before it."""


def after(tokens: Tensor) -> tuple[Tensor, None]:
    """Predicts the next character, all but certainly."""
    return 50.0 * one_hot((tokens + 1) % SIZE, SIZE), None


class FindsByTheRight:
    """Predicts a hidden character from the one after it; knows nothing where none follows."""

    mask_id = MASK

    def __call__(self, tokens: Tensor) -> Tensor:
        right = torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], -1)), 1)
        known = 50.0 * one_hot((right - 1).clamp(min=0) % SIZE, SIZE + 1)
        known[:, :, MASK] = -50.0
        return torch.where((right >= 1).unsqueeze(2), known, torch.zeros(SIZE + 1))


def test_nats_of_the_next_and_of_a_hidden_character() -> None:
    model: Any = FindsByTheRight()
    assert objective.next_nats(after, WINDOWS, CONTEXT - 1) < 1e-6  # type: ignore[arg-type]
    assert objective.masked_nats(model, WINDOWS, CONTEXT - 1) == pytest.approx(math.log(SIZE + 1))
    middle = WINDOWS[WINDOWS[:, CONTEXT // 2 + 1] != 0]
    assert objective.masked_nats(model, middle, CONTEXT // 2) < 1e-6
    assert objective.frequency_nats(torch.tensor([1, 0, 1]), torch.tensor([0, 1])) == pytest.approx(
        -math.log(2 / 5 * 1 / 5) / 2
    )


def test_a_probe_tells_what_can_be_told() -> None:
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 200, 6, generator=draw)
    apart = noise + 4 * torch.eye(4, 6).unsqueeze(1)
    assert objective.probe(apart[:, :100], apart[:, 100:]) > 0.95
    assert abs(objective.probe(noise[:, :100], noise[:, 100:]) - 1 / 4) < 0.1


def test_names_that_two_languages_have_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLAB_CORPORA", str(tmp_path))
    (tmp_path / NAMES).mkdir()
    enough = [f"n{k}" for k in range(MANY + TESTED)]
    texts = {"A": [*enough, "both"], "B": [f"m{name}" for name in enough] + ["both"], "C": ["few"]}
    for name, lines in texts.items():
        (tmp_path / NAMES / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = objective.languages()
    assert [set(names) for names in found] == [set(texts["A"]) - {"both"}, set(texts["B"]) - {"both"}]


def counted(weights: Tensor) -> Model:
    """The sum of one-hot tokens, each times the weight (T,) of its place."""
    return lambda tokens: (one_hot(tokens, VOCAB) * weights[:, None]).cumsum(1).double()


def test_a_sum_is_blind_and_a_weighted_sum_is_not() -> None:
    torch.manual_seed(0)
    assert at_last(counted(torch.ones(16, dtype=torch.float64))) == 0
    assert 0.3 < at_last(counted(torch.arange(16, dtype=torch.float64))) < 1.5
    little = torch.ones(16, dtype=torch.float64)
    little[3] += 1e-6
    assert 1e-8 < at_last(counted(little)) < 1e-5


def test_windows_and_directions_of_sums_by_hand() -> None:
    torch.manual_seed(0)
    alike, later = torch.ones(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    later[-WINDOW:] = torch.arange(1, WINDOW + 1)
    assert reversed_window(counted(alike)) == 0 and 0.3 < reversed_window(counted(later)) < 3
    assert before_window(counted(later)) == 0
    assert before_window(counted(alike)) == pytest.approx(((LENGTH - WINDOW) / (WINDOW - 1)) ** 0.5, rel=0.3)
    assert after_place(counted(alike)) == 0
    assert after_place(lambda tokens: counted(alike)(tokens.flip(1)).flip(1)) == math.inf
    assert 0.5 < after_place(lambda tokens: counted(alike)(tokens)[:, -1:].expand(-1, LENGTH, -1)) < 2


def masked(encoding: Any) -> MaskedLM:
    mixer = partial(Attention, pattern=Bidirectional)
    return MaskedLM(20, 16, encoder=partial(Encoder, mixer=mixer, d_model=16, num_layers=2, positions=encoding))


def causal(num_layers: int) -> DecoderLM:
    return DecoderLM(20, 16, d_model=16, num_layers=num_layers, positions=positions.NoPositions)


def test_trained_models_are_measured_alike_and_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "blind": masked(positions.NoPositions),
        "told": masked(positions.Sinusoidal),
        "1 deep": causal(1),
        "2 deep": causal(2),
    }
    for model in models.values():
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        model.eval()
    loaded = lambda name: SimpleNamespace(model=models[name], tokenizer=SimpleNamespace(vocab_size=20))  # noqa: E731
    monkeypatch.setattr("seqlab_studies.lib.order_effects.load_run", loaded)
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
