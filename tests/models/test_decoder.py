"""Guarantees of DecoderLM beyond the laws: initialisation, dropout, precision, copies."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from contracts.cases import DECODERS, MixerCase, PositionCase, pair_name
from seqlab.attention import Attention, Bidirectional
from seqlab.models import DecoderLM
from seqlab.nn import Block
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU
from tolerances import TOLERANCE, assert_close

# Not top-k attention: where two scores are as near as bfloat16 rounds, it chooses another key, and its output jumps.
PAIRS = [pair for pair in DECODERS if "top-k" not in pair[0].name]
pairs = pytest.mark.parametrize("pair", PAIRS, ids=pair_name)


@pairs
def test_trains_in_mixed_precision_and_runs_in_bfloat16(pair: tuple[MixerCase, PositionCase]) -> None:
    factories: dict[str, Any] = {"mixer": pair[0].factory, "positions": pair[1].factory}
    # In evaluation mode: in training, randomised positions are drawn anew by each call.
    model, tokens = DecoderLM(11, 16, d_model=16, num_layers=2, **factories).eval(), torch.randint(11, (2, 9))
    expected, _ = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model(tokens)
        stepped, _ = model.step(tokens[:, 0], state)
        F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
    assert_close(logits, expected, tolerance=TOLERANCE[torch.bfloat16])
    assert stepped.isfinite().all()
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert name.endswith("table.weight")
        else:
            assert parameter.grad.isfinite().all()

    model = model.bfloat16()
    logits, state = model(tokens[:, :8])
    last, new_state = model.step(tokens[:, 8], state)
    assert logits.dtype == last.dtype == torch.bfloat16
    assert_close(torch.cat((logits, last[:, None]), dim=1), expected)
    initial = model.init_state(1)
    assert {name: entry.dtype for name, entry in new_state.items()} == {n: e.dtype for n, e in initial.items()}


def test_initialisation_is_gpt2s() -> None:
    model = DecoderLM(500, 64, d_model=128, num_layers=8, positions=Learned)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            residual = "out_proj" in name or "down_proj" in name
            expected = 0.02 / math.sqrt(2 * 8) if residual else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_dropout_is_for_training_only() -> None:
    tokens = torch.randint(11, (2, 9))
    for options in (
        {"dropout": 0.5},
        {"block": partial(Block, dropout=0.5)},
        {"mixer": partial(Attention, dropout=0.5)},
    ):
        model = DecoderLM(11, 16, d_model=16, **options)
        assert not torch.equal(model(tokens)[0], model(tokens)[0])
        model.eval()
        assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_a_copy_shares_nothing_with_its_original() -> None:
    model = DecoderLM(11, 16, d_model=16, mixer=[Attention, GRU], positions=Learned)
    tokens = torch.randint(11, (1, 5))
    before, other = model(tokens)[0].detach(), copy.deepcopy(model)
    assert other.stack.blocks[0].mixer.scoring.positions is other.positions
    assert torch.equal(other(tokens)[0], before)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    assert torch.equal(model(tokens)[0], before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixer": partial(Attention, num_heads=3)}, "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        ({"mixer": partial(Attention, num_kv_heads=3)}, "num_kv_heads must divide num_heads"),
        ({"mixer": [GRU, partial(Attention, pattern=Bidirectional)]}, "layer 1 is a non-causal Attention"),
        ({"mixer": [GRU, GRU, GRU]}, "the number of mixers must be from 1 to num_layers, got 3 for num_layers 2"),
        ({"mixer": []}, "got 0 for num_layers 2"),
        ({"num_layers": 0}, "got 1 for num_layers 0"),
        ({"d_model": 0}, "d_model must be at least 1"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partial(DecoderLM, 11, 16, d_model=16, positions=NoPositions)(**options)


def test_capped_logits() -> None:
    """Gemma 2, section 2: cap tanh(logits / cap), in both forms."""
    model = DecoderLM(11, 8, d_model=8, num_layers=1, logit_cap=0.3).eval()
    plain = DecoderLM(11, 8, d_model=8, num_layers=1).eval()
    torch.nn.init.normal_(model.embedding.weight)
    plain.load_state_dict(model.state_dict())
    tokens = torch.randint(11, (2, 5))
    expected = 0.3 * torch.tanh(plain(tokens)[0] / 0.3)
    assert_close(model(tokens)[0], expected)
    assert_close(model.step(tokens[:, 0], model.init_state(2))[0], expected[:, 0])
    with pytest.raises(ValueError, match="logit_cap must be positive, got 0"):
        DecoderLM(11, 8, logit_cap=0.0)
