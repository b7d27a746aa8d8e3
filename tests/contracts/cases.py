"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from references.attention import softmax_attention
from references.linear_attention import delta_net, gated_linear_attention, linear_attention, mamba2, retention
from references.positions import NaiveALiBi, NaiveEncoding, NaiveLearned, NaiveRoPE, NaiveSinusoidal
from references.recurrence import gru, lstm, rnn
from references.rwkv import rwkv7
from references.xlstm import mlstm, slstm
from seqlab.attention import (
    Attention,
    DeltaNet,
    GatedDeltaNet,
    GatedLinearAttention,
    LinearAttention,
    Mamba2,
    Retention,
)
from seqlab.mixer import Mixer
from seqlab.positions import ALiBi, Learned, NoPositions, PositionalEncoding, RoPE, Sinusoidal
from seqlab.recurrence import GRU, LSTM, MLSTM, RNN, RWKV7, SLSTM

D_MODEL = 16
MAX_SEQ_LEN = 256
LENGTHS = (1, 2, 7, 63, 64, 129)


@dataclass(frozen=True)
class MixerCase:
    """A mixer under the laws.

    Attributes:
        reference: called with the mixer's parameters, x, which tokens are real, and the naive encoding.
        attends: whether it has queries, keys and scores for an encoding to act on.
    """

    name: str
    factory: Callable[[int, int], Mixer]
    reference: Callable[..., Tensor]
    attends: bool = True
    causal: bool = True


@dataclass(frozen=True)
class PositionCase:
    """A positional encoding under the laws."""

    name: str
    factory: Callable[[int, int], PositionalEncoding]
    reference: NaiveEncoding
    acts_on: str = "embeddings"


def _attention(name: str, *, num_heads: int, num_kv_heads: int, causal: bool = True, bias: bool = True) -> MixerCase:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "causal": causal}
    return MixerCase(name, partial(Attention, **heads, bias=bias), partial(softmax_attention, **heads), causal=causal)


def _recurrent(name: str, mixer: Callable[..., Mixer], reference: Callable[..., Tensor], **options: Any) -> MixerCase:
    """A mixer whose reference takes its options."""
    return MixerCase(name, partial(mixer, **options), partial(reference, **options), attends=False)


_MAMBA2 = {"d_state": 6, "head_dim": 8, "expand": 2}

MIXERS = [
    _attention("attention", num_heads=2, num_kv_heads=2),
    _attention("attention-grouped", num_heads=4, num_kv_heads=2),
    _attention("attention-multi-query", num_heads=2, num_kv_heads=1, bias=False),
    _attention("attention-both-ways", num_heads=2, num_kv_heads=2, causal=False),
    _attention("attention-both-ways-grouped", num_heads=4, num_kv_heads=2, causal=False),
    _recurrent("linear-elu", LinearAttention, linear_attention, num_heads=2, feature_map="elu"),
    _recurrent("linear-relu", LinearAttention, linear_attention, num_heads=2, feature_map="relu"),
    _recurrent("linear-softmax", LinearAttention, linear_attention, num_heads=2, feature_map="softmax"),
    _recurrent("retention", Retention, retention, num_heads=2),
    _recurrent("gated-linear", GatedLinearAttention, gated_linear_attention, num_heads=2),
    _recurrent("delta-net", DeltaNet, delta_net, num_heads=2),
    _recurrent("delta-net-negative", DeltaNet, delta_net, num_heads=2, negative_eigenvalues=True),
    MixerCase(
        "gated-delta-net",
        partial(GatedDeltaNet, num_heads=2),
        partial(delta_net, num_heads=2, gated=True),
        attends=False,
    ),
    _recurrent("mamba2", Mamba2, mamba2, **_MAMBA2, num_groups=1),
    _recurrent("mamba2-groups", Mamba2, mamba2, **_MAMBA2, num_groups=2),
    MixerCase("gru", GRU, gru, attends=False),
    MixerCase("lstm", LSTM, lstm, attends=False),
    MixerCase("rnn", RNN, rnn, attends=False),
    _recurrent("mlstm", MLSTM, mlstm, num_heads=2),
    _recurrent("slstm", SLSTM, slstm, num_heads=2),
    _recurrent("rwkv7", RWKV7, rwkv7, head_dim=8),
]

POSITIONS = [
    PositionCase("none", NoPositions, NaiveEncoding()),
    PositionCase("sinusoidal", Sinusoidal, NaiveSinusoidal()),
    PositionCase("learned", Learned, NaiveLearned()),
    PositionCase("rope", RoPE, NaiveRoPE(), "queries and keys"),
    PositionCase("alibi", ALiBi, NaiveALiBi(), "attention scores"),
]


def fits(mixer: MixerCase, positions: PositionCase) -> bool:
    """Whether the pair is possible: every mixer has embeddings, only some have queries, keys and scores."""
    return mixer.attends or positions.acts_on == "embeddings"


PAIRS = [(mixer, positions) for mixer in MIXERS for positions in POSITIONS if fits(mixer, positions)]
CAUSAL_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.causal]
BOTH_WAYS = [mixer for mixer in MIXERS if not mixer.causal]


def pair_name(pair: tuple[MixerCase, PositionCase]) -> str:
    return f"{pair[0].name}-{pair[1].name}"
