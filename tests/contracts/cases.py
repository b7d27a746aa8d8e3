"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from references.attention import soft_capped, softmax_attention, top_k
from references.positions import (
    NaiveALiBi,
    NaiveBinary,
    NaiveCoPE,
    NaiveEncoding,
    NaiveInteger,
    NaiveLearned,
    NaiveRandomized,
    NaiveRoPE,
    NaiveShaw,
    NaiveSinusoidal,
    NaiveT5,
    NaiveXPos,
    linear_theta,
    ntk_theta,
    yarn_theta,
)
from references.recurrence import gru, lstm, rnn
from seqlab.attention import (
    Attention,
    AttentionSink,
    Bidirectional,
    LogitSoftCap,
    OutputGate,
    PrefixCausal,
    QueryKeyNorm,
    SlidingWindow,
    TopK,
)
from seqlab.mixer import Mixer
from seqlab.positions import (
    ALiBi,
    Binary,
    CoPE,
    Integer,
    Learned,
    LinearScaling,
    NoPositions,
    NTKScaling,
    PositionalEncoding,
    Randomized,
    RoPE,
    Shaw,
    Sinusoidal,
    T5Bias,
    XPos,
    YaRN,
)
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
        first: tokens that its first call must hold, if there are as many.
        every_encoding: whether it is tested with every encoding that fits, or with none and one that acts on scores.
    """

    name: str
    factory: Callable[[int, int], Mixer]
    reference: Callable[..., Tensor]
    attends: bool = True
    causal: bool = True
    first: int = 1
    every_encoding: bool = True


@dataclass(frozen=True)
class PositionCase:
    """A positional encoding under the laws.

    Attributes:
        every_mixer: whether it is tested with every mixer that it fits, or with grouped attention only.
    """

    name: str
    factory: Callable[[int, int], PositionalEncoding]
    reference: NaiveEncoding
    acts_on: str = "embeddings"
    every_mixer: bool = True


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
    MixerCase("gru", GRU, gru, attends=False),
    MixerCase("lstm", LSTM, lstm, attends=False),
    MixerCase("rnn", RNN, rnn, attends=False),
]

_position_variant = partial(PositionCase, every_mixer=False)


def _rope(name: str, reference: NaiveRoPE, **options: Any) -> PositionCase:
    return _position_variant(f"rope-{name}", partial(RoPE, **options), reference, "queries and keys")


POSITIONS = [
    PositionCase("none", NoPositions, NaiveEncoding()),
    PositionCase("sinusoidal", Sinusoidal, NaiveSinusoidal()),
    PositionCase("learned", Learned, NaiveLearned()),
    PositionCase("rope", RoPE, NaiveRoPE(), "queries and keys"),
    PositionCase("alibi", ALiBi, NaiveALiBi(), "attention scores"),
    PositionCase("shaw", partial(Shaw, max_distance=5), NaiveShaw(5), "attention scores"),
    PositionCase("cope", partial(CoPE, num_positions=7), NaiveCoPE(), "attention scores"),
    PositionCase("t5", T5Bias, NaiveT5(), "attention scores"),
    _position_variant(
        "t5-both-ways",
        partial(T5Bias, num_buckets=8, max_distance=20, bidirectional=True),
        NaiveT5(8, 20, True),
        "attention scores",
    ),
    _position_variant(
        "shaw-keys-only", partial(Shaw, max_distance=5, relative_values=False), NaiveShaw(5), "attention scores"
    ),
    _position_variant("integer", partial(Integer, scaled=True), NaiveInteger(longest=MAX_SEQ_LEN)),
    _position_variant(
        "integer-concatenated",
        partial(Integer, scaled=True, combine="concatenate"),
        NaiveInteger("concatenate", longest=MAX_SEQ_LEN),
    ),
    _position_variant("binary", Binary, NaiveBinary()),
    _position_variant("binary-concatenated", partial(Binary, combine="concatenate"), NaiveBinary("concatenate")),
    _position_variant(
        "sinusoidal-concatenated", partial(Sinusoidal, combine="concatenate"), NaiveSinusoidal("concatenate")
    ),
    _position_variant("learned-concatenated", partial(Learned, combine="concatenate"), NaiveLearned("concatenate")),
    _position_variant("randomized", partial(Randomized, max_position=1000), NaiveRandomized(NaiveSinusoidal())),
    _position_variant(
        "randomized-learned", partial(Randomized, encoding=Learned, max_position=300), NaiveRandomized(NaiveLearned())
    ),
    _rope("partial", NaiveRoPE(parts=0.5), fraction=0.5),
    _rope("linear", NaiveRoPE(linear_theta(4)), scaling=partial(LinearScaling, 4.0)),
    _rope("ntk", NaiveRoPE(ntk_theta(3)), scaling=partial(NTKScaling, 3.0)),
    _rope(
        "yarn",
        NaiveRoPE(yarn_theta(64, 4), temperature=0.1 * math.log(4) + 1),
        scaling=partial(YaRN, original_seq_len=64, factor=4.0),
    ),
    _position_variant("xpos", XPos, NaiveXPos(MAX_SEQ_LEN // 2), "queries and keys"),
]


def fits(mixer: MixerCase, positions: PositionCase) -> bool:
    """Whether the pair is possible: every mixer has embeddings, only some have queries, keys and scores."""
    return mixer.attends or positions.acts_on == "embeddings"


def tested(mixer: MixerCase, positions: PositionCase) -> bool:
    if not fits(mixer, positions):
        return False
    if not positions.every_mixer:
        return mixer.name == "attention-grouped"
    return mixer.every_encoding or positions.name in ("none", "alibi")


PAIRS = [(mixer, positions) for mixer in MIXERS for positions in POSITIONS if tested(mixer, positions)]
CAUSAL_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.causal]
BOTH_WAYS = [mixer for mixer in MIXERS if not mixer.causal]


def pair_name(pair: tuple[MixerCase, PositionCase]) -> str:
    return f"{pair[0].name}-{pair[1].name}"
