"""Every positional encoding against its paper's equations, what it fits, what it promises, and what it refuses."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.cases import D_MODEL, MAX_SEQ_LEN, MIXERS, POSITIONS, MixerCase, PositionCase, fits
from contracts.subjects import decoder_subject, randomized
from references.positions import NaiveALiBi
from seqlab.attention import Attention
from seqlab.positions import Binary, CoPE, Integer, Learned, Randomized, RoPE, Shaw, Sinusoidal, T5Bias, XPos
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
    with pytest.raises(ValueError, match=rf"{encoding.__name__} positions reach 3 tokens, but the input reaches 4"):
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
    with pytest.raises(ValueError, match="XPos positions reach 24649 tokens, but the input reaches 24650"):
        score(xpos.max_seq_len, 0)


@pytest.mark.parametrize(
    ("encoding", "sizes"),
    [(T5Bias, "num_heads, got 2 and 4"), (Shaw, "head_dim, got 8 and 4"), (CoPE, "head_dim, got 8 and 4")],
)
def test_one_table_does_not_fit_two_sizes(encoding: Any, sizes: str) -> None:
    attentions = [partial(Attention, num_heads=num_heads) for num_heads in (2, 4)]
    sentence = f"{encoding.__name__} shares one table between all layers, which must have the same {sizes}"
    with pytest.raises(ValueError, match=sentence):
        decoder_subject(attentions, encoding)
    model, *_ = decoder_subject([attentions[0], attentions[0]], encoding)
    names = [name for name, _ in model.named_parameters() if "table" in name]
    assert names and all(name.startswith("positions.") for name in names), "one table, the model's"


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: T5Bias(8, 8, num_buckets=1), "at least 2 buckets per direction"),
        (lambda: T5Bias(8, 8, num_buckets=3, bidirectional=True), "at least 2 buckets per direction"),
        (lambda: T5Bias(8, 8, max_distance=16), "max_distance 16"),
        (lambda: Shaw(8, 8, max_distance=0), "at least 1, got 0"),
        (lambda: CoPE(8, 8, num_positions=1), "at least 2 positions, got 1"),
        (lambda: RoPE(8, 8, fraction=0.0), r"must be in \(0, 1\], got 0.0"),
        (lambda: RoPE(8, 8, fraction=0.1).attach(1, 8), "fraction 0.1 of head_dim 8 leaves RoPE no pair"),
        (lambda: XPos(8, 8, gamma=0.0), "positive gamma and scale_base"),
        (lambda: XPos(8, 8).attach(1, 3), "even, got 3"),
        (lambda: Integer(8, 0, scaled=True), "at least 1, got 0"),
        (lambda: Sinusoidal(7, 8), "even d_model, got 7"),
        (lambda: Sinusoidal(4, 4, combine="multiply"), "add or concatenate, got multiply"),  # type: ignore[arg-type]
        (lambda: Binary(3, 9), "need 4 channels, but d_model is 3"),
        (lambda: RoPE(9, 8).attach(3, 3), "even, got 3"),
        (lambda: Randomized(8, 9, max_position=8), "draws from 8 positions, which are too few for 9 tokens"),
        (lambda: Randomized(8, 8, encoding=RoPE), "must act on the embeddings.*got RoPE"),
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
    with pytest.raises(ValueError, match="draws from 100 positions, but the input has 101 tokens"):
        _drawn(encoding.train(), 101)
    with pytest.raises(ValueError, match="cannot continue a state"):
        encoding.embed(torch.zeros(1, 2, 1), torch.tensor([[5, 6]]))
    with pytest.raises(ValueError, match="Randomized positions reach 20 tokens, but the input reaches 21"):
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
