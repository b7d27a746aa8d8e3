"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
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
from references.linear_attention import delta_net, gated_linear_attention, linear_attention, mamba2, retention
from references.linear_recurrence import causal_conv, cbow, lru, mamba, min_gru, min_lstm, ngram_window, rg_lru, s4d
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
from references.rwkv import rwkv7
from references.xlstm import mlstm, slstm
from seqlab.attention import (
    Additive,
    AdditiveAttention,
    Attention,
    AttentionSink,
    Bidirectional,
    CrossAttention,
    DeltaNet,
    DifferentialAttention,
    Dot,
    GatedDeltaNet,
    GatedLinearAttention,
    LatentAttention,
    LinearAttention,
    LogitSoftCap,
    Mamba2,
    MultiplicativeAttention,
    OutputGate,
    PrefixCausal,
    QueryKeyNorm,
    Retention,
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
from seqlab.recurrence import (
    CBOW,
    GRU,
    LRU,
    LSTM,
    MLSTM,
    RGLRU,
    RNN,
    RWKV7,
    S4D,
    SLSTM,
    CausalConv,
    Mamba,
    MinGRU,
    MinLSTM,
    NGramWindow,
)

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
        every_encoding: whether every run tests it with every encoding that fits, and at every length.
    """

    name: str
    factory: Callable[[int, int], Mixer]
    reference: Callable[..., Tensor]
    attends: bool = True
    causal: bool = True
    memory: bool = False
    full_values: bool = True
    every_encoding: bool = False


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
    every_encoding: bool = False,
    causal: bool = True,
    **options: Any,
) -> MixerCase:
    """`options` are the mixer's, `seen` what the reference is told of them."""
    heads: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return MixerCase(
        name,
        partial(Attention, **heads, **options),
        partial(softmax_attention, **heads, **(seen or {})),
        causal=causal,
        every_encoding=every_encoding,
    )


def _latent(name: str, *, num_heads: int = 2, every_encoding: bool = False, **options: Any) -> MixerCase:
    return MixerCase(
        name,
        partial(LatentAttention, num_heads=num_heads, **options),
        partial(latent_attention, num_heads=num_heads),
        full_values=False,
        every_encoding=every_encoding,
    )


def _differential(
    name: str, *, num_heads: int = 2, num_kv_heads: int = 2, layer: int = 0, every_encoding: bool = False
) -> MixerCase:
    """A mixer that serves as layer `layer` + k of a model, for k = 0, 1, ..."""
    heads: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return MixerCase(
        name,
        lambda d_model, k: DifferentialAttention(d_model, layer + k, **heads),
        partial(differential_attention, layer=layer, **heads),
        full_values=False,
        every_encoding=every_encoding,
    )


def _cross(name: str, *, num_heads: int = 2, num_kv_heads: int = 2, **options: Any) -> MixerCase:
    heads: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    return _aligned(name, partial(CrossAttention, **heads, **options), partial(cross_attention, **heads))


def _aligned(name: str, factory: Callable[[int, int], Mixer], reference: Callable[..., Tensor]) -> MixerCase:
    return MixerCase(name, factory, reference, attends=False, memory=True)


def _luong(name: str, seen: dict[str, Any], **options: Any) -> MixerCase:
    """`options` are the mixer's, `seen` what the reference is told of them."""
    return _aligned(name, partial(MultiplicativeAttention, **options), partial(multiplicative_attention, **seen))


def _everything(t: int, j: int) -> bool:
    return True


_both_ways: dict[str, Any] = {"pattern": Bidirectional, "causal": False, "seen": {"sees": _everything}}


def _second_layer_conv(d_model: int, layer: int) -> Mixer:
    return CausalConv(d_model, layer + 1, width=2, dilation_growth=3)


def _recurrent(name: str, mixer: Callable[..., Mixer], reference: Callable[..., Tensor], **options: Any) -> MixerCase:
    """A mixer whose reference takes its options."""
    return MixerCase(name, partial(mixer, **options), partial(reference, **options), attends=False)


_MAMBA2 = {"d_state": 6, "head_dim": 8, "expand": 2}

MIXERS = [
    _attention("attention"),
    _attention("attention-grouped", num_heads=4, every_encoding=True),
    _attention("attention-multi-query", num_kv_heads=1, bias=False),
    _attention("attention-both-ways", **_both_ways),
    _attention("attention-both-ways-grouped", num_heads=4, **_both_ways),
    _attention(
        "attention-window",
        num_heads=4,
        pattern=partial(SlidingWindow, window=5),
        seen={"sees": lambda t, j: t - 5 < j <= t},
    ),
    _attention(
        "attention-prefix",
        pattern=partial(PrefixCausal, prefix_len=3),
        seen={"sees": lambda t, j: j <= t or j < 3},
    ),
    _attention("attention-unscaled", head_dim=6, scale=1.0, seen={"scale": 1.0}),
    _attention("attention-query-key-norm", parts=[QueryKeyNorm]),
    _attention("attention-soft-cap", parts=[partial(LogitSoftCap, cap=2.0)], seen={"change": soft_capped(2.0)}),
    _attention("attention-sink", num_heads=4, parts=[AttentionSink]),
    _attention("attention-output-gate", parts=[OutputGate]),
    _attention("attention-top-k", parts=[partial(TopK, k=3)], seen={"change": top_k(3)}),
    _attention(
        "attention-parts",
        parts=[QueryKeyNorm, AttentionSink, OutputGate],
        pattern=partial(SlidingWindow, window=5),
        seen={"sees": lambda t, j: t - 5 < j <= t},
    ),
    _latent("latent"),
    _latent("latent-compressed-queries", num_heads=3, head_dim=6, q_rank=5, rope_head_dim=2),
    _differential("differential"),
    _differential("differential-grouped", num_heads=4, layer=3),
    _cross("cross-attention"),
    _cross("cross-attention-grouped", num_heads=4, bias=False),
    _aligned("additive", AdditiveAttention, additive_attention),
    _aligned("additive-dot", partial(AdditiveAttention, score=Dot), partial(additive_attention, score="dot")),
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
    MixerCase("gru", GRU, gru, attends=False, every_encoding=True),
    MixerCase("lstm", LSTM, lstm, attends=False),
    MixerCase("rnn", RNN, rnn, attends=False),
    MixerCase("gru-stacked", partial(GRU, num_layers=2), gru, attends=False),
    MixerCase("lstm-stacked", partial(LSTM, num_layers=3, forget_bias=1.0), lstm, attends=False),
    MixerCase("rnn-relu", partial(RNN, nonlinearity="relu"), partial(rnn, relu=True), attends=False),
    MixerCase("rnn-looped", partial(RNN, num_layers=2, looped=True), rnn, attends=False),
    MixerCase("gru-both-ways", partial(GRU, bidirectional=True), gru, attends=False, causal=False),
    MixerCase("lstm-both-ways", partial(LSTM, num_layers=2, bidirectional=True), lstm, attends=False, causal=False),
    MixerCase("rnn-both-ways", partial(RNN, bidirectional=True), rnn, attends=False, causal=False),
    MixerCase("lru", LRU, lru, attends=False),
    MixerCase("min-gru", MinGRU, min_gru, attends=False),
    MixerCase("min-gru-wide", partial(MinGRU, expand=2), min_gru, attends=False),
    MixerCase("min-lstm", MinLSTM, min_lstm, attends=False),
    MixerCase("s4d", partial(S4D, d_state=6), s4d, attends=False),
    MixerCase("rg-lru", partial(RGLRU, d_state=24, num_heads=3), rg_lru, attends=False),
    MixerCase("mamba", partial(Mamba, d_state=3), mamba, attends=False),
    MixerCase("ngram-window", partial(NGramWindow, window=3), partial(ngram_window, window=3), attends=False),
    MixerCase("cbow", partial(CBOW, window=3), partial(cbow, window=3), attends=False),
    MixerCase("causal-conv", CausalConv, partial(causal_conv, dilation=1), attends=False),
    MixerCase("causal-conv-dilated", _second_layer_conv, partial(causal_conv, dilation=3), attends=False),
    _recurrent("linear-elu", LinearAttention, linear_attention, num_heads=2, feature_map="elu"),
    _recurrent("linear-relu", LinearAttention, linear_attention, num_heads=2, feature_map="relu"),
    _recurrent("linear-softmax", LinearAttention, linear_attention, num_heads=2, feature_map="softmax"),
    MixerCase(
        "linear-conv",
        partial(LinearAttention, num_heads=2, conv_width=3),
        partial(linear_attention, num_heads=2, feature_map="elu"),
        attends=False,
    ),
    _recurrent("retention", Retention, retention, num_heads=2),
    MixerCase(
        "retention-conv", partial(Retention, num_heads=2, conv_width=4), partial(retention, num_heads=2), attends=False
    ),
    _recurrent("gated-linear", GatedLinearAttention, gated_linear_attention, num_heads=2),
    MixerCase(
        "gated-linear-conv",
        partial(GatedLinearAttention, num_heads=2, conv_width=2),
        partial(gated_linear_attention, num_heads=2),
        attends=False,
    ),
    _recurrent("delta-net", DeltaNet, delta_net, num_heads=2),
    MixerCase(
        "delta-net-no-conv",
        partial(DeltaNet, num_heads=2, conv_width=None),
        partial(delta_net, num_heads=2),
        attends=False,
    ),
    _recurrent("delta-net-negative", DeltaNet, delta_net, num_heads=2, negative_eigenvalues=True),
    MixerCase(
        "gated-delta-net",
        partial(GatedDeltaNet, num_heads=2),
        partial(delta_net, num_heads=2, gated=True),
        attends=False,
    ),
    _recurrent("mamba2", Mamba2, mamba2, **_MAMBA2, num_groups=1),
    _recurrent("mamba2-groups", Mamba2, mamba2, **_MAMBA2, num_groups=2),
    _recurrent("mlstm", MLSTM, mlstm, num_heads=2),
    _recurrent("slstm", SLSTM, slstm, num_heads=2),
    _recurrent("rwkv7", RWKV7, rwkv7, head_dim=8),
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
    _position_variant("integer", partial(Integer, scaled=True, combine="add"), NaiveInteger(longest=MAX_SEQ_LEN)),
    _position_variant(
        "integer-concatenated",
        partial(Integer, scaled=True),
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
    """Returns True if the pair is possible: every mixer has embeddings, only some have queries, keys and scores of one
    sequence."""
    weighs_values = positions.factory(D_MODEL, MAX_SEQ_LEN).weighs_values
    return positions.acts_on == "embeddings" or (mixer.attends and (mixer.full_values or not weighs_values))


def in_every_run(mixer: MixerCase, positions: PositionCase) -> bool:
    """Returns True if the pair is tested at every length and in a decoder. Each mixer and encoding has such a pair."""
    default = positions.name == "none" or (positions.name == "rope" and mixer.attends)
    return default or mixer.every_encoding


PAIRS = [
    (mixer, positions)
    for mixer in MIXERS
    for positions in POSITIONS
    if fits(mixer, positions)
    and (positions.every_mixer or mixer.name == "attention-grouped")
    and not (mixer.memory and positions.name != "none")
]
CAUSAL_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.causal and not mixer.memory]
MEMORY_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.memory]
BOTH_WAYS = [mixer for mixer in MIXERS if not mixer.causal]


def pair_name(pair: tuple[MixerCase, PositionCase]) -> str:
    return f"{pair[0].name}-{pair[1].name}"


def with_lengths(pairs: list[tuple[MixerCase, PositionCase]]) -> list[Any]:
    """(pair, lengths) as test parameters. A chunk is 64 tokens: one beyond it is in every run, others are slow."""
    found = []
    for pair in pairs:
        every = in_every_run(*pair)
        found.append(pytest.param(pair, (1, 2, 7, 65) if every else (7,), id=pair_name(pair)))
        if every:
            found.append(pytest.param(pair, (63, 64, 129), id=f"{pair_name(pair)}-more", marks=pytest.mark.slow))
    return found
