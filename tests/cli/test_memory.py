"""Options that save memory, as the user gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.conftest import Seqlab, last_weights, write_text
from cli.test_stopped_fit import FIT


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    return inside(tmp_path)


@pytest.mark.slow
def test_activations_that_are_computed_again_change_no_bit(quick: Seqlab) -> None:
    """Nor the names of the weights; a resumed fit goes on with the option."""
    fit = (*FIT, "--model.model.block.dropout=0.1")
    quick(*fit, "--run_name=plain")
    quick(*fit, "--run_name=again", "--checkpoint_activations=true", "--trainer.max_steps=4")
    quick("resume", "again", "--trainer.max_steps=6")
    plain, again = last_weights("plain"), last_weights("again")
    assert list(plain) == list(again)
    assert all(torch.equal(weight, again[name]) for name, weight in plain.items())


def test_a_model_without_blocks_is_refused(quick: Seqlab, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one two\tdue uno\n" * 4, encoding="utf-8")
    options = ("--data.train=pairs.tsv", "--data.val=pairs.tsv", "--checkpoint_activations=true")
    said = quick("fit", "--config", "translate/rnn", *options, code=2).stderr.splitlines()[-1]
    assert said == "seqlab: RNNSeq2Seq has no stack of blocks whose activations could be computed again"
