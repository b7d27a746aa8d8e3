"""A size is solved for each budget, by any number of a config, or refused with the nearest values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import seqlab.budgets.match as matching
from seqlab.budgets.match import Budget, match
from seqlab.config.configs import config_path, load_short_yaml


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(matching, "build_data", lambda config: SimpleNamespace(vocab_size=107, seq_len=128))
    return load_short_yaml(config_path("lm/attention-rope").read_text(encoding="utf-8"))


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
    assert matched.costs.keys() == {"params", "flops", "state"}


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
