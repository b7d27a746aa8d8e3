"""Every positional encoding against its paper's equations, and what it fits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from contracts.cases import D_MODEL, MAX_SEQ_LEN, MIXERS, POSITIONS, MixerCase, PositionCase, fits
from contracts.subjects import randomized
from references.positions import NaiveALiBi
from seqlab.positions import Binary, Integer, Learned, Sinusoidal
from tolerances import assert_close

encodings = pytest.mark.parametrize("case", POSITIONS, ids=lambda case: case.name)


@encodings
def test_embed_is_the_papers(case: PositionCase) -> None:
    encoding = randomized(case.factory(D_MODEL, MAX_SEQ_LEN))
    x = torch.randn(2, 3, D_MODEL, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 129], [255, 7, 2]])
    weights = encoding.state_dict()
    expected = [case.reference.embed(x[row, t], int(positions[row, t]), weights) for row in range(2) for t in range(3)]
    assert_close(encoding.embed(x, positions).flatten(0, 1), torch.stack(expected))
    shared = encoding.embed(x, positions[:1])
    assert_close(shared[0], encoding.embed(x, positions)[0], "one row of positions for the whole batch")


@encodings
def test_rotate_is_the_papers(case: PositionCase) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    encoding.attach(4, 6)
    q, k = torch.randn(2, 4, 3, 6, dtype=torch.float64), torch.randn(2, 2, 3, 6, dtype=torch.float64)
    far = 100_000 if encoding.max_seq_len is None else min(100_000, encoding.max_seq_len - 1)
    positions = torch.tensor([[0, 1, 129], [far, 7, 2]])
    naive_forms = (case.reference.query, case.reference.key)
    for ours, vectors, naive in zip(encoding.rotate(q, k, positions), (q, k), naive_forms, strict=True):
        for row, head, t in [(0, 0, 0), (0, 1, 1), (0, 0, 2), (1, 1, 0), (1, 0, 1)]:
            expected = naive(vectors[row, head, t], int(positions[row, t]))
            # 1e5 radians are known to 1e5 eps only.
            assert_close(ours[row, head, t], expected, tolerance=1e-10)


@encodings
@pytest.mark.parametrize("num_heads", [1, 3, 8, 16, 20])
def test_bias_is_the_papers(case: PositionCase, num_heads: int) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    encoding.attach(num_heads, 6)
    randomized(encoding)
    q_at, k_at = torch.tensor([[2, 3], [7, 150]]), torch.tensor([[0, 1, 2, 3], [5, 6, 70, 150]])
    q, k = torch.randn(2, num_heads, 2, 6, dtype=torch.float64), torch.randn(2, 1, 4, 6, dtype=torch.float64)
    allowed = k_at[:, None, None, :] <= q_at[:, None, :, None]
    bias = encoding.bias(q, k, q_at, k_at, allowed)
    if bias is None:
        bias = torch.zeros(2, num_heads, 2, 4, dtype=torch.float64)
    weights = dict(encoding.named_parameters())
    for row, head, t in itertools.product(range(2), range(num_heads), range(2)):
        seen = allowed[row, 0, t]
        at = [*k_at[row, seen].tolist(), int(q_at[row, t])]
        expected = case.reference.bias(head, num_heads, q[row, head, t], k[row, 0, seen], at, weights)
        assert_close(bias[row, head, t, seen], expected)


def test_alibi_slopes_of_the_paper() -> None:
    """Section 3: for 8 heads 1/2, 1/4, ..., 1/256; for 16 the same ratio's square root."""
    assert [NaiveALiBi().slope(head, 8) for head in range(8)] == [2.0**-i for i in range(1, 9)]
    slopes = [NaiveALiBi().slope(head, 16) for head in range(16)]
    assert slopes == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: mixer.name)
def test_a_mixer_takes_what_fits_and_refuses_the_rest(mixer: MixerCase) -> None:
    for case in [case for case in POSITIONS if case.every_mixer or mixer.name == "attention-grouped"]:
        block, encoding = mixer.factory(D_MODEL, 0), case.factory(D_MODEL, MAX_SEQ_LEN)
        if fits(mixer, case):
            block.attach_positions(encoding)
        else:
            with pytest.raises(ValueError, match=rf"{type(encoding).__name__}.*{type(block).__name__}"):
                block.attach_positions(encoding)


@pytest.mark.parametrize("encoding", [Learned, Binary])
def test_a_limit_is_kept(encoding: Any) -> None:
    limited = encoding(4, 3)
    assert limited.max_seq_len == 3
    limited.embed(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    with pytest.raises(ValueError, match=rf"{encoding.__name__} positions reach 3 tokens, the input reaches 4"):
        limited.embed(torch.zeros(1, 1, 4), torch.tensor([[3]]))


def test_integers_are_the_positions_themselves_or_scaled_by_the_longest_length() -> None:
    x, positions = torch.zeros(1, 4, 2), torch.tensor([[0, 1, 4, 1000]])
    assert Integer(2, 8, combine="add").embed(x, positions)[0].tolist() == [[0, 0], [1, 1], [4, 4], [1000, 1000]]
    scaled = Integer(2, 8, scaled=True, combine="add").embed(x, positions)
    assert scaled[0, :, 0].tolist() == [0, 0.125, 0.5, 125]


@encodings
def test_concatenated_a_new_encoding_leaves_the_embeddings_nearly_as_they_are(case: PositionCase) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    if getattr(encoding, "combine", "add") == "concatenate":
        moved = encoding.embed(torch.zeros(1, 3, D_MODEL), torch.tensor([[0, 1, 200]]))
        x = torch.randn(1, 3, D_MODEL)
        assert_close(encoding.embed(x, torch.tensor([[0, 1, 200]])) - x, moved)
        assert moved.abs().max() < 1


@encodings
def test_constants_keep_their_precision_and_are_in_no_checkpoint(case: PositionCase) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    encoding.attach(4, 6)
    before = {name: buffer.clone() for name, buffer in encoding.named_buffers()}
    encoding.bfloat16().double()
    assert set(encoding.state_dict()) - {"draw"} == {name for name, _ in encoding.named_parameters()}
    for name, buffer in encoding.named_buffers():
        assert buffer.dtype == before[name].dtype and torch.equal(buffer, before[name])


def test_constants_are_made_anew_from_the_meta_device() -> None:
    with torch.device("meta"):
        encoding = Sinusoidal(4, 4)
    encoding.to_empty(device="cpu")
    x, positions = torch.zeros(1, 2, 4), torch.tensor([[1, 3]])
    assert torch.equal(encoding.embed(x, positions), Sinusoidal(4, 4).embed(x, positions))
