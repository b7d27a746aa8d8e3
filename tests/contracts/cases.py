"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from references.alignment import additive_attention, multiplicative_attention
from references.attention import (
    cross_attention,
    differential_attention,
    latent_attention,
    soft_capped,
    softmax_attention,
    top_k,
)
from references.positions import NaiveALiBi, NaiveEncoding, NaiveLearned, NaiveRoPE, NaiveSinusoidal
from references.recurrence import gru, lstm, rnn
from seqlab.attention import (
    Additive,
    AdditiveAttention,
    Attention,
    AttentionSink,
    Bidirectional,
    CrossAttention,
    DifferentialAttention,
    Dot,
    LatentAttention,
    LogitSoftCap,
    MultiplicativeAttention,
    OutputGate,
    PrefixCausal,
    QueryKeyNorm,
    SlidingWindow,
    TopK,
)
from seqlab.mixer import Mixer
from seqlab.positions import ALiBi, Learned, NoPositions, PositionalEncoding, RoPE, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN

D_MODEL = 16
MAX_SEQ_LEN = 256
LENGTHS = (1, 2, 7, 63, 64, 129)


@dataclass(frozen=True)
class MixerCase:
    """A mixer under the laws.

    Attributes:
        reference: called with the mixer's parameters, x, which tokens are real, the naive encoding and its parameters.
        attends: whether it has queries, keys and scores for an encoding to act on.
        memory: whether it attends to an encoder's memory. The reference is told `memory` (S, D) and `memory_mask` (S,).
        full_values: whether an encoding may add to the value of each key.
        first: tokens that its first call must hold, if there are as many.
        every_encoding: whether it is tested with every encoding that fits, or with none and one that acts on scores.
    """

    name: str
    factory: Callable[[int, int], Mixer]
    reference: Callable[..., Tensor]
    attends: bool = True
    causal: bool = True
    memory: bool = False
    full_values: bool = True
    first: int = 1
    every_encoding: bool = True


@dataclass(frozen=True)
class PositionCase:
    """A positional encoding under the laws."""

    name: str
    factory: Callable[[int, int], PositionalEncoding]
    reference: NaiveEncoding
    acts_on: str = "embeddings"


def _attention(
    name: str,
    *,
    num_heads: int = 2,
    num_kv_heads: int = 2,
    seen: dict[str, Any] | None = None,
    every_encoding: bool = True,
    first: int = 1,
    causal: bool = True,
    **options: Any,
) -> MixerCase:
    """`options` are the mixer's, `seen` what the reference is told of them."""
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return MixerCase(
        name,
        partial(Attention, **heads, **options),
        partial(softmax_attention, **heads, **(seen or {})),
        causal=causal,
        first=first,
        every_encoding=every_encoding,
    )


def _latent(name: str, *, num_heads: int = 2, every_encoding: bool = True, **options: Any) -> MixerCase:
    return MixerCase(
        name,
        partial(LatentAttention, num_heads=num_heads, **options),
        partial(latent_attention, num_heads=num_heads),
        full_values=False,
        every_encoding=every_encoding,
    )


def _differential(
    name: str, *, num_heads: int = 2, num_kv_heads: int = 2, layer: int = 0, every_encoding: bool = True
) -> MixerCase:
    """As layer `layer` + k of a model, for k = 0, 1, ..."""
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return MixerCase(
        name,
        lambda d_model, k: DifferentialAttention(d_model, layer + k, **heads),
        partial(differential_attention, layer=layer, **heads),
        full_values=False,
        every_encoding=every_encoding,
    )


def _cross(name: str, *, num_heads: int = 2, num_kv_heads: int = 2, **options: Any) -> MixerCase:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return _aligned(name, partial(CrossAttention, **heads, **options), partial(cross_attention, **heads))


def _aligned(name: str, factory: Callable[[int, int], Mixer], reference: Callable[..., Tensor]) -> MixerCase:
    return MixerCase(name, factory, reference, attends=False, memory=True)


def _luong(name: str, seen: dict[str, Any], **options: Any) -> MixerCase:
    """`options` are the mixer's, `seen` what the reference is told of them."""
    return _aligned(name, partial(MultiplicativeAttention, **options), partial(multiplicative_attention, **seen))


def _everything(t: int, j: int) -> bool:
    return True


_variant = partial(_attention, every_encoding=False)
_both_ways: dict[str, Any] = {"pattern": Bidirectional, "causal": False, "seen": {"sees": _everything}}

MIXERS = [
    _attention("attention"),
    _attention("attention-grouped", num_heads=4),
    _attention("attention-multi-query", num_kv_heads=1, bias=False),
    _attention("attention-both-ways", **_both_ways),
    _attention("attention-both-ways-grouped", num_heads=4, **_both_ways),
    _attention(
        "attention-window",
        num_heads=4,
        pattern=partial(SlidingWindow, window=5),
        seen={"sees": lambda t, j: t - 5 < j <= t},
    ),
    _variant(
        "attention-prefix",
        pattern=partial(PrefixCausal, prefix_len=3),
        seen={"sees": lambda t, j: j <= t or j < 3},
        first=3,
    ),
    _variant("attention-unscaled", head_dim=6, scale=1.0, seen={"scale": 1.0}),
    _variant("attention-query-key-norm", parts=[QueryKeyNorm]),
    _variant("attention-soft-cap", parts=[partial(LogitSoftCap, cap=2.0)], seen={"change": soft_capped(2.0)}),
    _variant("attention-sink", num_heads=4, parts=[AttentionSink]),
    _variant("attention-output-gate", parts=[OutputGate]),
    _variant("attention-top-k", parts=[partial(TopK, k=3)], seen={"change": top_k(3)}),
    _variant(
        "attention-parts",
        parts=[QueryKeyNorm, AttentionSink, OutputGate],
        pattern=partial(SlidingWindow, window=5),
        seen={"sees": lambda t, j: t - 5 < j <= t},
    ),
    _latent("latent"),
    _latent("latent-compressed-queries", num_heads=3, head_dim=6, q_rank=5, rope_head_dim=2, every_encoding=False),
    _differential("differential"),
    _differential("differential-grouped", num_heads=4, layer=3, every_encoding=False),
    _cross("cross-attention"),
    _cross("cross-attention-grouped", num_heads=4, bias=False),
    _aligned("additive", AdditiveAttention, additive_attention),
    _luong("multiplicative", {"score": "general"}),
    _luong("multiplicative-dot-gru", {"score": "dot", "cell": "gru"}, score=Dot, recurrence=GRU),
    _luong("multiplicative-concat", {"score": "concat"}, score=Additive),
    _luong("multiplicative-local", {"score": "general", "window": 2}, window=2),
    _luong("multiplicative-fed", {"score": "general"}, input_feeding=True),
    _luong(
        "multiplicative-local-fed-gru",
        {"score": "concat", "cell": "gru", "window": 2},
        score=Additive,
        recurrence=GRU,
        window=2,
        input_feeding=True,
    ),
    MixerCase("gru", GRU, gru, attends=False),
    MixerCase("lstm", LSTM, lstm, attends=False),
    MixerCase("rnn", RNN, rnn, attends=False),
]

POSITIONS = [
    PositionCase("none", NoPositions, NaiveEncoding()),
    PositionCase("sinusoidal", Sinusoidal, NaiveSinusoidal()),
    PositionCase("learned", Learned, NaiveLearned()),
    PositionCase("rope", RoPE, NaiveRoPE(), "queries and keys"),
    PositionCase("alibi", ALiBi, NaiveALiBi(), "attention scores"),
]


def fits(mixer: MixerCase, positions: PositionCase) -> bool:
    """Whether the pair is possible: every mixer has embeddings, only some have queries, keys and scores of one
    sequence."""
    weighs_values = positions.factory(D_MODEL, MAX_SEQ_LEN).weighs_values
    return positions.acts_on == "embeddings" or (mixer.attends and (mixer.full_values or not weighs_values))


def tested(mixer: MixerCase, positions: PositionCase) -> bool:
    if mixer.memory:  # no model for it here that has embeddings
        return positions.name == "none"
    return fits(mixer, positions) and (mixer.every_encoding or positions.name in ("none", "alibi"))


PAIRS = [(mixer, positions) for mixer in MIXERS for positions in POSITIONS if tested(mixer, positions)]
CAUSAL_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.causal and not mixer.memory]
MEMORY_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.memory]
BOTH_WAYS = [mixer for mixer in MIXERS if not mixer.causal]


def pair_name(pair: tuple[MixerCase, PositionCase]) -> str:
    return f"{pair[0].name}-{pair[1].name}"
