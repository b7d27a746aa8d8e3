"""Guarantees of single forms of attention beyond their references, and their refusals, which name both sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from contracts.subjects import randomized
from seqlab.attention import (
    AdditiveAttention,
    Attention,
    CrossAttention,
    DifferentialAttention,
    LatentAttention,
    MultiplicativeAttention,
)
from seqlab.models import DecoderLM
from seqlab.positions import Learned, NoPositions, RoPE, Sinusoidal
from seqlab.probes.ablation import heads_of, left_out
from tolerances import assert_close


@torch.no_grad()
def test_a_head_that_is_left_out_says_nothing() -> None:
    model = DecoderLM(5, 32, d_model=8, num_layers=2, mixer=Attention, positions=NoPositions).eval()
    (name, _), second, *others = heads_of(model)
    assert len(others) == 6
    attention = model.get_submodule(name)
    assert isinstance(attention, Attention)
    x = torch.randn(1, 4, 8)
    whole = attention(x)[0]
    with left_out(model, [second]):
        without = attention(x)[0]
    assert_close(attention(x)[0], whole)
    attention.out_proj.weight[:, 2:4] = 0
    assert_close(without, attention(x)[0])
    assert not torch.allclose(whole, without)


@torch.no_grad()
def test_a_window_is_all_that_local_attention_sees() -> None:
    """At most 2 D + 1 neighbours, among the real tokens, whose weights are less than they were without a Gaussian."""
    mixer = randomized(MultiplicativeAttention(16, window=2))
    memory_mask = torch.ones(2, 40, dtype=torch.bool)
    memory_mask[1, 3:] = False
    x, memory = torch.randn(2, 9, 16).double(), torch.randn(2, 40, 16).double()
    weights = mixer.attention_weights(x, mixer.init_state(2, memory, memory_mask))
    assert not weights[1, ..., 3:].any()
    for row in weights.flatten(0, 2):
        seen = row.nonzero()[:, 0]
        assert 1 <= len(seen) <= 5 and seen[-1] - seen[0] == len(seen) - 1
        assert 0 < row.sum() < 1


@torch.no_grad()
def test_additive_attention_starts_as_an_average() -> None:
    """Appendix B.1 of the paper: v is 0 at first."""
    mixer = AdditiveAttention(16)
    weights = mixer.attention_weights(torch.randn(2, 3, 16), mixer.init_state(2, torch.randn(2, 5, 16)))
    assert_close(weights, torch.full((2, 1, 3, 5), 0.2))


@torch.no_grad()
def test_what_is_fed_back_matters() -> None:
    mixer = randomized(MultiplicativeAttention(16, input_feeding=True))
    x, state = torch.randn(2, 16).double(), mixer.init_state(2, torch.randn(2, 5, 16).double())
    y, new_state = mixer.step(x, state)
    assert torch.equal(new_state["fed"], y)
    changed = mixer.step(x, new_state | {"fed": torch.zeros_like(y)})[0]
    assert (changed - mixer.step(x, new_state)[0]).abs().max() > 1e-3


def test_lambda_starts_as_the_paper_says() -> None:
    """Section 2.1: 0.2 in the first layer, rising to 0.8, and noise of 0.1 in each vector; what else is initialised
    leaves it alone."""
    model = DecoderLM(11, 8, d_model=256, num_layers=12, mixer=DifferentialAttention)
    mixers: list[Any] = [block.mixer for block in model.stack.blocks]
    assert [mixer.lambda_init for mixer in mixers[:2]] == pytest.approx([0.2, 0.3555090676])
    assert mixers[-1].lambda_init == pytest.approx(0.8, abs=0.03)
    vectors = torch.cat([mixer.lambda_k2 for mixer in mixers])
    assert vectors.std().item() == pytest.approx(0.1, rel=0.25)


def test_differential_attention_is_as_large_as_attention_of_twice_the_heads() -> None:
    ours, theirs = DifferentialAttention(64, num_heads=4), Attention(64, num_heads=8, bias=False)
    assert ours.head_dim == theirs.head_dim
    counts = [sum(p.numel() for name, p in mixer.named_parameters() if "_proj" in name) for mixer in (ours, theirs)]
    assert counts[0] == counts[1]
    assert ours.state_size(10) == theirs.state_size(10)


def test_the_cache_of_latent_attention_has_the_papers_size() -> None:
    """Table 1 of DeepSeek-V2: (d_c + d_h^R) a token and layer, 4.5 d_h, against 2 n_h d_h."""
    latent = LatentAttention(512, num_heads=16)
    assert latent.state_size(100) == 100 * 4.5 * 32
    assert Attention(512, num_heads=16).state_size(100) == 100 * 2 * 16 * 32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(CrossAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(CrossAttention, num_kv_heads=3), "got num_kv_heads 3 and num_heads 4"),
        (partial(LatentAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(LatentAttention, num_heads=0, head_dim=4), "got num_heads 0"),
        (partial(LatentAttention, head_dim=0), "head_dim must be at least 1, got 0"),
        (partial(LatentAttention, kv_rank=0), "kv_rank must be at least 1, got 0"),
        (partial(LatentAttention, q_rank=-1), "q_rank must be at least 1, got -1"),
        (partial(LatentAttention, num_heads=16), "rope_head_dim must be at least 1, got 0"),
        (partial(DifferentialAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(DifferentialAttention, num_kv_heads=4), "got num_kv_heads 4 and num_heads 2"),
        (partial(DifferentialAttention, num_heads=16), "d_model / num_heads must be even, got 16 / 16 = 1"),
        (partial(MultiplicativeAttention, window=0), "the window of local attention must be at least 1, got 0"),
        (
            partial(MultiplicativeAttention, recurrence=Attention),
            "needs a causal recurrence .* LSTM or GRU, got Attention",
        ),
        (partial(MultiplicativeAttention, recurrence=AdditiveAttention), "recurrence .*, got AdditiveAttention"),
    ],
)
def test_what_cannot_be_built(build: Callable[[int], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(16)


@torch.no_grad()
def test_positions_of_one_layer() -> None:
    """A layer with an encoding of its own computes as in a model that has that encoding."""
    x = torch.randn(2, 6, 16)
    ours: dict[str, Any] = {"none": NoPositions, "another": partial(RoPE, base=100.0)}
    for name, positions in ours.items():
        mixer, alone = Attention(16, positions=positions), Attention(16)
        mixer.attach_positions(RoPE(16, 8))
        alone.load_state_dict(mixer.state_dict())
        alone.attach_positions(positions(16, 8))
        assert_close(mixer(x)[0], alone(x)[0], name)
        alone.attach_positions(RoPE(16, 8))
        assert not torch.allclose(mixer(x)[0], alone(x)[0])
    for other in (Sinusoidal, Learned):
        with pytest.raises(ValueError, match=f"cannot have {other.__name__} of its own; accepted: NoPositions"):
            Attention(16, positions=other)


class WeighsValues(NoPositions):
    acts_on = "attention scores"
    weighs_values = True


@pytest.mark.parametrize("mixer", [LatentAttention, DifferentialAttention])
def test_positions_that_add_to_values(mixer: Callable[[int], Any]) -> None:
    with pytest.raises(ValueError, match=f"WeighsValues adds vectors .*to the values.* {mixer.__name__} "):
        mixer(16).attach_positions(WeighsValues(16, 8))


def test_a_rotary_encoding_is_told_its_own_width() -> None:
    LatentAttention(12, num_heads=2, rope_head_dim=2).attach_positions(RoPE(12, 8))
    with pytest.raises(ValueError, match="head_dim must be even, got 3"):
        LatentAttention(16, rope_head_dim=3).attach_positions(RoPE(16, 8))
