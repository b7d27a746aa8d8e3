"""Declared properties of the encodings, and their refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.cases import D_MODEL, MAX_SEQ_LEN, POSITIONS, PositionCase
from contracts.subjects import decoder_subject, randomized
from seqlab.attention import Attention
from seqlab.positions import Binary, CoPE, Integer, Learned, Randomized, RoPE, Shaw, Sinusoidal, T5Bias, XPos
from tolerances import assert_close

HEAD_DIM = 6


@pytest.mark.parametrize("case", POSITIONS, ids=lambda case: case.name)
def test_relative_encodings_tell_distances_only(case: PositionCase) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    encoding.attach(2, HEAD_DIM)
    randomized(encoding)
    x = torch.randn(1, 9, D_MODEL, dtype=torch.float64)
    q, k = torch.randn(2, 1, 2, 9, HEAD_DIM, dtype=torch.float64)

    def told(first: int) -> list[Tensor]:
        at = torch.arange(first, first + 9)[None]
        rotated_q, rotated_k = encoding.rotate(q, k, at)
        bias = encoding.bias(q, k, at, at, torch.ones(1, 1, 9, 9, dtype=torch.bool))
        scores = rotated_q @ rotated_k.transpose(-2, -1)
        return [encoding.embed(x, at), scores if bias is None else scores + bias]

    here, there = told(0), told(100)
    if encoding.relative:
        assert_close(there[0], here[0])
        assert_close(there[1], here[1], tolerance=1e-11)  # 1e2 radians are known to 1e2 eps only
    else:
        assert not torch.allclose(here[0], there[0])


def test_xpos_keeps_its_precision_up_to_its_limit() -> None:
    xpos = XPos(D_MODEL, MAX_SEQ_LEN)
    xpos.attach(1, 8)
    q, k = torch.randn(2, 1, 1, 1, 8)

    def score(q_position: int, k_position: int) -> Tensor:
        rotated_q, _ = xpos.rotate(q, k, torch.tensor([[q_position]]))
        _, rotated_k = xpos.rotate(q, k, torch.tensor([[k_position]]))
        return (rotated_q * rotated_k).sum()

    assert xpos.max_seq_len == 128 + 24521
    for far in (1000, xpos.max_seq_len - 1):
        assert_close(score(far, far - 3), score(3, 0))
    assert 0 < score(600, 0).abs() < score(0, 0).abs()
    with pytest.raises(ValueError, match="XPos positions reach 24649 tokens, the input reaches 24650"):
        score(xpos.max_seq_len, 0)


@pytest.mark.parametrize(
    ("encoding", "size", "other"),
    [(T5Bias, "2 heads", "4 heads"), (Shaw, "head_dim 8", "head_dim 4"), (CoPE, "head_dim 8", "head_dim 4")],
)
def test_one_table_does_not_fit_two_sizes(encoding: Any, size: str, other: str) -> None:
    attentions = [partial(Attention, num_heads=num_heads) for num_heads in (2, 4)]
    sentence = f"{encoding.__name__} has one table for all layers, of {size}, and does not fit an attention of {other}"
    with pytest.raises(ValueError, match=sentence):
        decoder_subject(attentions, encoding)
    model, *_ = decoder_subject([attentions[0], attentions[0]], encoding)
    names = [name for name, _ in model.named_parameters() if "table" in name]
    assert names and all(name.startswith("positions.") for name in names), "one table, the model's"


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: T5Bias(8, 8, num_buckets=1), "at least 2 buckets each way"),
        (lambda: T5Bias(8, 8, num_buckets=3, bidirectional=True), "at least 2 buckets each way"),
        (lambda: T5Bias(8, 8, max_distance=16), "max_distance 16"),
        (lambda: Shaw(8, 8, max_distance=0), "at least 1, got 0"),
        (lambda: CoPE(8, 8, num_positions=1), "at least 2 positions, got 1"),
        (lambda: RoPE(8, 8, fraction=0.0), "up to 1, got 0.0"),
        (lambda: RoPE(8, 8, fraction=0.1).attach(1, 8), "0.1 of a head_dim of 8 is none"),
        (lambda: XPos(8, 8, gamma=0.0), "positive gamma and scale_base"),
        (lambda: XPos(8, 8).attach(1, 3), "even, got 3"),
        (lambda: Integer(8, 0, scaled=True), "at least 1, got 0"),
        (lambda: Sinusoidal(7, 8), "even d_model, got 7"),
        (lambda: Sinusoidal(4, 4, combine="multiply"), "add or concatenate, got multiply"),  # type: ignore[arg-type]
        (lambda: Binary(3, 9), "need 4 channels, d_model is 3"),
        (lambda: RoPE(9, 8).attach(3, 3), "even, got 3"),
        (lambda: Randomized(8, 9, max_position=8), "draws from 8 positions, too few for 9 tokens"),
        (lambda: Randomized(8, 8, encoding=RoPE), "of the embeddings.*got RoPE"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_given(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def _drawn(encoding: Randomized, length: int, rows: int = 1) -> Tensor:
    """(B, T): the positions that were given to an encoding that adds them as they are."""
    return encoding.embed(torch.zeros(rows, length, 1), torch.arange(length).expand(rows, -1))[..., 0].long()


def _randomized(**options: Any) -> Randomized:
    return Randomized(1, 20, encoding=partial(Integer, combine="add"), max_position=100, **options)


def test_training_draws_a_sorted_subset_anew_for_each_call_from_torchs_generator() -> None:
    encoding = _randomized().train()
    drawn = [_drawn(encoding, 20, rows=3) for _ in range(50)]
    for positions in drawn:
        assert (positions[0].diff() > 0).all() and positions[0, 0] >= 0 and positions[0, -1] < 100
        assert (positions == positions[0]).all(), "rows differ"
    assert len({tuple(positions[0].tolist()) for positions in drawn}) == 50
    assert len(torch.cat(drawn).unique()) == 100, "some position never came"
    torch.manual_seed(3)
    again = _drawn(encoding, 20)
    torch.manual_seed(3)
    assert torch.equal(_drawn(encoding, 20), again)


def test_evaluation_has_one_draw_which_the_checkpoint_holds() -> None:
    encoding, other = _randomized(longest=50).eval(), _randomized(longest=50, seed=1).eval()
    drawn = _drawn(encoding, 50)
    assert (drawn[0].diff() > 0).all() and drawn.max() < 100
    assert torch.equal(_drawn(encoding, 7), drawn[:, :7])
    assert not torch.equal(_drawn(other, 50), drawn)
    other.load_state_dict(encoding.state_dict())
    assert torch.equal(_drawn(other, 50), drawn)


def test_randomized_refuses_what_it_cannot_place() -> None:
    encoding = _randomized()
    with pytest.raises(ValueError, match="draws from 100 positions, the input has 101 tokens"):
        _drawn(encoding.train(), 101)
    with pytest.raises(ValueError, match="cannot continue a state"):
        encoding.embed(torch.zeros(1, 2, 1), torch.tensor([[5, 6]]))
    with pytest.raises(ValueError, match="Randomized positions reach 20 tokens, the input reaches 21"):
        _drawn(encoding.eval(), 21)


def test_randomized_learned_positions_are_all_trained() -> None:
    encoding = Randomized(4, 20, encoding=Learned, max_position=30).train()
    for _ in range(20):
        encoding.embed(torch.zeros(1, 20, 4), torch.arange(20)[None]).sum().backward()
    assert (encoding.encoding.table.weight.grad.abs().sum(dim=1) > 0).all()


def test_dropped_weights_give_no_relative_values_either() -> None:
    """Shaw et al. 2018, equation 3, has one weight for a value and its relative vector."""
    attention, encoding = Attention(D_MODEL, num_heads=2, dropout=0.5), Shaw(D_MODEL, MAX_SEQ_LEN)
    attention.attach_positions(encoding)
    torch.nn.init.zeros_(attention.v_proj.weight)
    torch.nn.init.zeros_(attention.v_proj.bias)
    x = torch.randn(1, 5, D_MODEL)
    assert not torch.allclose(attention.train()(x)[0], attention.eval()(x)[0])
