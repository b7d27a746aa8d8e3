"""A mixture of experts as a user names it: a fit of a given size, what it tells, and what it goes on with."""

from __future__ import annotations

import pytest
from torch import Tensor

from cli.conftest import TINY, Seqlab, last_weights
from seqlab.tracking.runs import find_run

FFN = "--model.model.block=Block", "--model.model.block.ffn=MixtureOfExperts"
FIT = ("fit", "--config=lm/attention-rope", *TINY, "--trainer.log_every_n_steps=1", *FFN)


def test_a_fit_of_experts_is_matched_balanced_and_resumed(quick: Seqlab) -> None:
    options = "--model.model.block.ffn.num_experts=4", "--match=active_params", "--to=5000", "--match_by=ffn.d_ff"
    said = quick(*FIT, *options, "--run_name=fitted").stderr
    metrics = find_run("fitted").metrics
    assert metrics["num_active_params"] == pytest.approx(5000, rel=0.02) and metrics["num_params"] > 6000
    assert f"{metrics['num_active_params']:,.0f} of the parameters are" in said
    (line,) = (line for line in said.splitlines() if line.startswith("matched"))
    assert f"not matched: {metrics['num_params']:,.0f} parameters, " in line
    loads = [value for _, value in find_run("fitted").history("train/expert_load_max")]
    assert len(loads) == 4 and all(1 <= load <= 2 for load in loads)

    (before,) = raises()
    quick("resume", "fitted", "--trainer.max_steps=6")
    (after,) = raises()
    assert 0 < before.abs().max() <= 4 and (after - before).abs().max() in (1, 2)


def raises() -> list[Tensor]:
    return [found for name, found in last_weights("fitted").items() if name.endswith("ffn.raises")]


def test_what_a_mixture_refuses_is_one_sentence(quick: Seqlab) -> None:
    said = quick(*FIT, "--model.model.block.ffn.top_k=9", code=2).stderr
    assert "top_k must be in 1 to num_experts, got top_k 9 and num_experts 8" in said.splitlines()[-1]
    said = quick(*FIT, "--model.model.block.ffn.router=hash", code=2).stderr
    assert "softmax" in said and "sigmoid" in said
