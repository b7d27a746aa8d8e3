"""A size is solved for each budget, by any number of a config, or refused with the nearest values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import seqlab.budgets.match as matching
from seqlab.budgets.match import CostEstimate, match, said
from seqlab.config.configs import read_config
from seqlab.config.options import Budget


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(matching, "build_data", lambda config: SimpleNamespace(vocab_size=107, seq_len=128))
    return read_config("lm/attention-rope")


@pytest.mark.parametrize(
    ("mixer", "budget", "to", "by", "number"),
    [
        ("Attention", "flops", 4.7e6, "d_model", 168),
        ("Attention", "params", 2_000_000, "num_layers", 10),
        ("GRU", "state", 2 * 333 * 4, "d_model", 333),
        ("Mamba", "flops", 1e6, "model.model.d_model", 71),
    ],
)
def test_every_budget(config: Any, mixer: str, budget: Budget, to: float, by: str, number: int) -> None:
    options = config["model"]["init_args"]["model"]["init_args"]
    options["mixer"] = mixer
    options["positions"] = "RoPE" if mixer == "Attention" else "NoPositions"
    matched = match(config, budget, to, by)
    assert matched.number == options[matched.path[-1]] == number
    assert matched.costs[budget] == pytest.approx(to, rel=0.02)
    assert matched.costs.keys() == {"params", "active_params", "flops", "state"}
    assert "active" not in said(matched, budget, to)  # without experts all are


def test_widths_go_by_what_heads_need_and_finer_ones_do_not(config: Any) -> None:
    """Rotary heads of an even width each, four of them: multiples of 8."""
    with pytest.raises(
        ValueError, match=r"d_model 120 gives 36\d,\d{3} and 128 gives 41\d,\d{3}: neither is within 2% of 385"
    ):
        match(config, "params", 385_000, "d_model")
    options = config["model"]["init_args"]["model"]["init_args"]
    options["block"] = {
        "class_path": "Block",
        "init_args": {"ffn": {"class_path": "GELU", "init_args": {"d_ff": None}}},
    }
    assert match(config, "params", 385_000, "ffn.d_ff").costs["params"] == pytest.approx(385_000, rel=0.005)
    with pytest.raises(ValueError, match=r"--match state: ffn\.d_ff does not change it"):
        match(config, "state", 1e5, "ffn.d_ff")


def measure(spread: float) -> Any:
    """A clock by which a step takes a tenth of a microsecond a parameter."""
    asked: list[int] = []

    def seconds(task: Any, data: Any) -> CostEstimate:
        asked.append(sum(weight.numel() for weight in task.parameters()))
        assert len(set(asked)) == len(asked), "a model was measured twice"
        return CostEstimate(asked[-1] * 1e-7, spread)

    return seconds


def test_seconds_are_measured(config: Any) -> None:
    matched = match(config, "seconds", 0.041, "d_model", measure(0.001))
    assert matched.number == 128
    assert said(matched, "seconds", 0.041) == (
        "matched 0.04105 seconds a step (+0.1% of 0.041, measured to ±0.1%) by d_model 128 (was 128); "
        "not matched: 410,496 parameters, 2,834,688 FLOPs a token, 262,144 bytes of state"
    )


def test_what_is_measured_is_as_near_as_the_noise_allows(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"num_layers 2 gives 0\.04105 and 3 gives 0\.06\d+: neither is within 2%"):
        match(config, "seconds", 0.05, "num_layers", measure(0.01))
    matched = match(config, "seconds", 0.05, "num_layers", measure(0.2))
    assert (matched.number, matched.spread) == (2, 0.2)
    monkeypatch.setattr(matching, "virtual_memory", lambda: SimpleNamespace(available=20e6))
    with pytest.raises(ValueError, match=r"num_layers 8 needs 0\.0\d+ GB to be measured, 0\.02 are free"):
        match(config, "seconds", 1e9, "num_layers", measure(0.01))
