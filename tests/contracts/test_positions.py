"""Every positional encoding against its paper's equations, and what it fits."""

from __future__ import annotations

import pytest
import torch

from contracts.cases import D_MODEL, MAX_SEQ_LEN, MIXERS, POSITIONS, MixerCase, PositionCase, fits
from contracts.subjects import randomized
from seqlab.positions import ALiBi, Learned, RoPE, Sinusoidal
from tolerances import assert_close

encodings = pytest.mark.parametrize("case", POSITIONS, ids=lambda case: case.name)


@encodings
def test_embed_is_the_papers(case: PositionCase) -> None:
    encoding = randomized(case.factory(D_MODEL, MAX_SEQ_LEN))
    x = torch.randn(2, 3, D_MODEL, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 129], [255, 7, 2]])
    weights = dict(encoding.named_parameters())
    expected = [case.reference.embed(x[row, t], int(positions[row, t]), weights) for row in range(2) for t in range(3)]
    assert_close(encoding.embed(x, positions).flatten(0, 1), torch.stack(expected))
    shared = encoding.embed(x, positions[:1])
    assert_close(shared[0], encoding.embed(x, positions)[0], "one row of positions for the whole batch")


@encodings
def test_rotate_is_the_papers(case: PositionCase) -> None:
    encoding = case.factory(D_MODEL, MAX_SEQ_LEN)
    q, k = torch.randn(2, 4, 3, 6, dtype=torch.float64), torch.randn(2, 2, 3, 6, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 129], [100_000, 7, 2]])
    for ours, vectors in zip(encoding.rotate(q, k, positions), (q, k), strict=True):
        for row, head, t in [(0, 0, 0), (0, 1, 1), (0, 0, 2), (1, 1, 0), (1, 0, 1)]:
            expected = case.reference.rotate(vectors[row, head, t], int(positions[row, t]))
            # 1e5 radians are known to 1e5 eps only.
            assert_close(ours[row, head, t], expected, tolerance=1e-10)


@encodings
@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_bias_is_the_papers(case: PositionCase, num_heads: int) -> None:
    queries, keys = torch.tensor([[2, 3], [7, 8]]), torch.tensor([[0, 1, 2, 3], [2, 6, 7, 8]])
    bias = case.factory(D_MODEL, MAX_SEQ_LEN).bias(queries, keys, num_heads, torch.float64)
    expected = torch.tensor(
        [
            [
                [[case.reference.bias(head, num_heads, int(q), int(k)) for k in keys[row]] for q in queries[row]]
                for head in range(num_heads)
            ]
            for row in range(2)
        ],
        dtype=torch.float64,
    )
    if bias is None:
        assert not expected.any()
    else:
        assert_close(bias, expected)


def test_alibi_slopes_of_the_paper() -> None:
    """Section 3: for 8 heads 1/2, 1/4, ..., 1/256; for 16 the same ratio's square root."""
    one, zero = torch.tensor([[1]]), torch.tensor([[0]])
    eight = -ALiBi(8, 8).bias(one, zero, 8, torch.float64).flatten()
    assert eight.tolist() == [2.0**-i for i in range(1, 9)]
    sixteen = -ALiBi(8, 8).bias(one, zero, 16, torch.float64).flatten()
    assert sixteen.tolist() == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])


def test_rope_scores_depend_on_the_distance_only() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    rope = RoPE(8, 8)

    def score(q_position: int, k_position: int) -> torch.Tensor:
        rotated_q, _ = rope.rotate(q, k, torch.tensor([[q_position]]))
        _, rotated_k = rope.rotate(q, k, torch.tensor([[k_position]]))
        return (rotated_q * rotated_k).sum()

    assert_close(score(5, 2), score(1005, 1002), tolerance=1e-11)  # 1e3 radians are known to 1e3 eps only
    assert abs(score(5, 2) - score(5, 3)) > 1e-3


@encodings
def test_an_encoding_tells_positions_apart(case: PositionCase) -> None:
    encoding = randomized(case.factory(D_MODEL, MAX_SEQ_LEN))
    x = torch.ones(1, 1, D_MODEL, dtype=torch.float64)
    q = x.view(1, 2, 1, D_MODEL // 2)
    here, there = torch.tensor([[3]]), torch.tensor([[4]])
    zero = torch.tensor([[0]])
    moved = (
        not torch.equal(encoding.embed(x, here), encoding.embed(x, there)),
        not torch.equal(encoding.rotate(q, q, here)[0], encoding.rotate(q, q, there)[0]),
        encoding.bias(here, zero, 2, torch.float64) is not None
        and not torch.equal(encoding.bias(here, zero, 2, torch.float64), encoding.bias(there, zero, 2, torch.float64)),
    )
    places = ("embeddings", "queries and keys", "attention scores")
    assert encoding.acts_on == case.acts_on
    assert moved == tuple(case.name != "none" and place == case.acts_on for place in places)


@encodings
@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: mixer.name)
def test_a_mixer_takes_what_fits_and_refuses_the_rest(mixer: MixerCase, case: PositionCase) -> None:
    block, encoding = mixer.factory(D_MODEL, 0), case.factory(D_MODEL, MAX_SEQ_LEN)
    if fits(mixer, case):
        block.attach_positions(encoding)
    else:
        with pytest.raises(ValueError, match=rf"{type(encoding).__name__}.*{type(block).__name__}"):
            block.attach_positions(encoding)


def test_learned_refuses_what_is_too_long() -> None:
    learned = Learned(4, 3)
    assert learned.max_seq_len == 3
    learned.embed(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    with pytest.raises(ValueError, match="reach 3 tokens, the input reaches 4"):
        learned.embed(torch.zeros(1, 1, 4), torch.tensor([[3]]))


def test_widths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="even d_model, got 7"):
        Sinusoidal(7, 8)
    with pytest.raises(ValueError, match="even, got 3"):
        RoPE(9, 8).attach(3, 3)
