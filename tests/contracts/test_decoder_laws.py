"""DecoderLM keeps the laws of its mixers, whatever it is built from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from contracts.cases import DECODERS, MixerCase, PositionCase, pair_name
from contracts.subjects import check_laws, decoder_subject
from seqlab import nn
from seqlab.attention import Attention, SlidingWindow
from seqlab.laws import CAUSAL
from seqlab.mixer import State
from seqlab.nn import Block
from seqlab.positions import ALiBi, Learned, NoPositions, RoPE, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN

VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {"mixer": Attention, "positions": RoPE, "block": partial(Block, norm=nn.RMSNorm, ffn=nn.SwiGLU)},
    "post-norm": {"mixer": Attention, "positions": Sinusoidal, "block": partial(Block, norm_place="post")},
    "post-norm-rms": {"mixer": GRU, "positions": Learned, "block": partial(Block, norm=nn.RMSNorm, norm_place="post")},
    "sandwich": {"mixer": Attention, "positions": RoPE, "block": partial(Block, norm_place="sandwich")},
    "no-norm-scaled": {
        "mixer": Attention,
        "positions": ALiBi,
        "block": partial(Block, norm_place="none", residual=partial(nn.Sum, scale=0.5), ffn=nn.ReLU),
    },
    "parallel": {"mixer": Attention, "positions": RoPE, "block": partial(Block, parallel=True, ffn=nn.SquaredReLU)},
    "no-feed-forward": {"mixer": GRU, "positions": NoPositions, "block": partial(Block, ffn=nn.NoFeedForward)},
    "no-residual": {"mixer": LSTM, "positions": Learned, "block": partial(Block, residual=nn.NoResidual)},
    "layer-scale": {"mixer": Attention, "positions": RoPE, "block": partial(Block, residual=nn.LayerScale)},
    "untied": {"mixer": LSTM, "positions": NoPositions, "tie_embeddings": False},
    "no-biases": {
        "mixer": partial(Attention, bias=False),
        "positions": ALiBi,
        "block": partial(Block, norm=partial(nn.LayerNorm, bias=False), ffn=partial(nn.GELU, bias=False)),
    },
    "hybrid": {"mixer": [GRU, Attention], "positions": Learned, "num_layers": 3},
    "hybrid-of-three": {
        "mixer": [partial(Attention, num_kv_heads=1), RNN, LSTM],
        "positions": Sinusoidal,
        "num_layers": 4,
    },
    "eleven-layers": {"mixer": [GRU, LSTM], "positions": NoPositions, "num_layers": 11},
}


@pytest.mark.parametrize("pair", DECODERS, ids=pair_name)
def test_pairs(pair: tuple[MixerCase, PositionCase]) -> None:
    """Each mixer and each encoding at least once; those of the embeddings, which no mixer sees, at every length."""
    lengths = (7,) if pair[1].acts_on != "embeddings" or pair[1].name == "none" else (1, 2, 7, 65)
    check_laws(CAUSAL, decoder_subject(pair[0].factory, pair[1].factory, num_layers=2), lengths)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str) -> None:
    """The laws, and a state of the position, the key mask, and the layers in order."""
    subject = decoder_subject(**VARIANTS[variant])
    check_laws(CAUSAL, subject, (7,))
    names = list(subject.module(subject.draw(2, 3))[1])
    assert names[0] == "position"
    cached = any(name.endswith("_k") for name in names)
    assert ("key_mask" in names) == cached
    layers = names[2:] if cached else names[1:]
    numbers = [int(name.partition("_")[0]) for name in layers]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(VARIANTS[variant].get("num_layers", 2)))


def _grown(state: State, name: str, by: int) -> State:
    """`state` with the entry `name` longer in its last but one dimension."""
    entry = state[name]
    return state | {name: torch.cat((entry, entry.new_zeros(*entry.shape[:-2], by, entry.shape[-1])), dim=-2)}


NEED = r"\(2, 4, 3, 4\)"


@pytest.mark.parametrize(
    ("mixer", "break_", "message"),
    [
        (GRU, lambda s: s | {"1_c": s["1_h"]}, r"has entries .*'1_c'.*, but this model needs .*'1_h'\]"),
        (Attention, lambda s: {n: e for n, e in s.items() if n != "0_v"}, r"'0_k', '1_k'.*this model needs .*'0_v'"),
        (
            Attention,
            lambda s: s | {"1_k": s["1_k"][:1]},
            rf"1_k has shape \(1, 4, 3, 4\), but this model and a batch of 2 need {NEED}",
        ),
        (
            partial(Attention, num_kv_heads=2),
            lambda s: s | {"0_k": s["0_k"][:, :1]},
            r"\(2, 1, 3, 4\), .*\(2, 2, 3, 4\)",
        ),
        (Attention, lambda s: s | {"0_v": s["0_v"][..., :3]}, rf"0_v has shape \(2, 4, 3, 3\), .*{NEED}"),
        (Attention, lambda s: s | {"0_v": s["0_v"][0]}, rf"0_v has shape \(4, 3, 4\), .*{NEED}"),
        (Attention, lambda s: _grown(s, "1_v", 2), rf"1_v has shape \(2, 4, 5, 4\), .*{NEED}"),
        (
            partial(Attention, pattern=partial(SlidingWindow, window=6)),
            lambda s: _grown(s, "0_k", 1),
            r"0_k has shape \(2, 4, 7, 4\), .*\(2, 4, 6, 4\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused(mixer: Any, break_: Callable[[State], State], message: str) -> None:
    model, draw = decoder_subject(mixer, NoPositions)
    _, state = model(draw(2, 3))
    with pytest.raises(ValueError, match=message):
        model(draw(2, 2), break_(state))
    with pytest.raises(ValueError, match=message):
        model.step(draw(2, 1)[:, 0], break_(state))


@pytest.mark.parametrize(("positions", "limit"), [(Learned, 256), (RoPE, None), (NoPositions, None)])
def test_max_seq_len_is_how_far_the_positions_reach(positions: Any, limit: int | None) -> None:
    model, draw = decoder_subject(Attention, positions)
    assert model.max_seq_len == limit
    if limit is not None:
        _, state = model(draw(1, limit))
        with pytest.raises(ValueError, match="256 tokens"):
            model.step(draw(1, 1)[:, 0], state)
        with pytest.raises(ValueError, match="256 tokens"):
            model(draw(1, limit + 1))
