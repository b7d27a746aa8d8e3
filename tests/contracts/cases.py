"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from references import attention as softmax
from references import linear_attention as linear
from references import linear_recurrence as scans
from references import positions as naive
from references import recurrence as cells
from seqlab import attention as att
from seqlab import positions as pos
from seqlab import recurrence as rec
from seqlab.mixer import Mixer

D_MODEL = 16
MAX_SEQ_LEN = 256


@dataclass(frozen=True)
class MixerCase:
    """A mixer under the laws.

    Attributes:
        reference: called with the mixer's parameters, x, which tokens are real, the naive encoding and its parameters.
        attends: whether it has queries, keys and scores for an encoding to act on.
        own_positions: whether it has queries and keys but no place for an encoding that acts on them.
        memory: whether it attends to an encoder's memory. The reference is told `memory` (S, D) and `memory_mask` (S,).
        full_values: whether an encoding may add to the value of each key.
        in_chunks: whether it computes chunks of time, so that lengths around theirs are edges.
        every_encoding: whether every run tests it with every encoding that fits, and at every length.
    """

    name: str
    factory: Callable[[int, int], Mixer]
    reference: Callable[..., Tensor]
    attends: bool = False
    own_positions: bool = False
    causal: bool = True
    memory: bool = False
    full_values: bool = True
    in_chunks: bool = False
    every_encoding: bool = False


@dataclass(frozen=True)
class PositionCase:
    """A positional encoding under the laws.

    Attributes:
        every_mixer: whether it is tested with more mixers than grouped attention.
    """

    name: str
    factory: Callable[[int, int], pos.PositionalEncoding]
    reference: naive.NaiveEncoding
    acts_on: str = "embeddings"
    every_mixer: bool = True


Options = dict[str, Any]


def _mixer(
    name: str,
    mixer: Callable[..., Mixer],
    reference: Callable[..., Tensor],
    ours: Options | None = None,
    theirs: Options | None = None,
    *,
    kind: Options | None = None,
    **both: Any,
) -> MixerCase:
    """`ours` are the mixer's options, `theirs` what the reference is told of them; `both` are told to both."""
    return MixerCase(
        name, partial(mixer, **both, **(ours or {})), partial(reference, **both, **(theirs or {})), **(kind or {})
    )


HEADS: Options = {"num_heads": 2, "num_kv_heads": 2}
GROUPED: Options = {"num_heads": 4, "num_kv_heads": 2}


def _attention(
    name: str, ours: Options | None = None, theirs: Options | None = None, heads: Options = HEADS, **kind: Any
) -> MixerCase:
    kind["attends"] = True
    return _mixer(name, att.Attention, softmax.softmax_attention, ours, theirs, kind=kind, **heads)


def _latent(name: str, num_heads: int = 2, **ours: Any) -> MixerCase:
    kind = {"attends": True, "full_values": False}
    return _mixer(name, att.LatentAttention, softmax.latent_attention, ours, kind=kind, num_heads=num_heads)


def _differential(name: str, layer: int, heads: Options) -> MixerCase:
    """A mixer that serves as layer `layer` + k of a model, for k = 0, 1, ..."""
    return MixerCase(
        name,
        lambda d_model, k: att.DifferentialAttention(d_model, layer + k, **heads),
        partial(softmax.differential_attention, layer=layer, **heads),
        attends=True,
        full_values=False,
    )


_with_memory = partial(_mixer, kind={"memory": True})
_luong = partial(_with_memory, mixer=att.MultiplicativeAttention, reference=cells.multiplicative_attention)
_path = partial(_mixer, mixer=att.PaTHAttention, reference=softmax.path_attention, kind={"own_positions": True})
_in_chunks = partial(_mixer, kind={"in_chunks": True})


def _second_layer_conv(d_model: int, layer: int) -> Mixer:
    return rec.CausalConv(d_model, layer + 1, width=2, dilation_growth=3)


def _everything(t: int, j: int) -> bool:
    return True


def _within_5(t: int, j: int) -> bool:
    return t - 5 < j <= t


_BOTH_WAYS = ({"pattern": att.Bidirectional}, {"sees": _everything})
_WINDOW = partial(att.SlidingWindow, window=5)
_LOCAL_FED_GRU = {"score": att.Additive, "recurrence": rec.GRU, "window": 2, "input_feeding": True}
_MAMBA2: Options = {"d_state": 6, "head_dim": 8, "expand": 2}
_MAMBA3: Options = {"d_state": 8, "head_dim": 8, "expand": 2}

MIXERS = [
    _attention("attention"),
    _attention("attention-grouped", heads=GROUPED, every_encoding=True),
    _attention("attention-multi-query", {"bias": False}, heads={"num_heads": 2, "num_kv_heads": 1}),
    _attention("attention-both-ways", *_BOTH_WAYS, causal=False),
    _attention("attention-both-ways-grouped", *_BOTH_WAYS, GROUPED, causal=False),
    _attention("attention-window", {"pattern": _WINDOW}, {"sees": _within_5}, GROUPED),
    _attention(
        "attention-prefix", {"pattern": partial(att.PrefixCausal, prefix_len=3)}, {"sees": lambda t, j: j <= t or j < 3}
    ),
    _attention("attention-unscaled", {"head_dim": 6, "scale": 1.0}, {"scale": 1.0}),
    _attention("attention-query-key-norm", {"parts": [att.QueryKeyNorm]}),
    _attention("attention-full-norm", {"parts": [partial(att.FullQueryKeyNorm, num_kv_heads=2)]}, heads=GROUPED),
    _attention(
        "attention-soft-cap", {"parts": [partial(att.LogitSoftCap, cap=2.0)]}, {"change": softmax.soft_capped(2)}
    ),
    _attention("attention-sink", {"parts": [att.AttentionSink]}, heads=GROUPED),
    _attention("attention-output-gate", {"parts": [att.OutputGate]}),
    _attention("attention-head-gate", {"parts": [partial(att.OutputGate, per="head")]}),
    _attention("attention-moba", {"parts": [partial(att.MoBA, block=3, k=2)]}, {"change": softmax.moba(3, 2)}),
    _attention("attention-own-block", {"parts": [partial(att.MoBA, block=4, k=1)]}, {"change": softmax.moba(4, 1)}),
    _attention("attention-top-k", {"parts": [partial(att.TopK, k=3)]}, {"change": softmax.top_k(3)}),
    _attention(
        "attention-parts",
        {"parts": [att.QueryKeyNorm, att.AttentionSink, att.OutputGate], "pattern": _WINDOW},
        {"sees": _within_5},
    ),
    _attention("attention-forget-gate", {"parts": [att.ForgetGate]}, heads=GROUPED),
    _attention(
        "attention-forget-gate-window", {"parts": [att.ForgetGate], "pattern": _WINDOW}, {"sees": _within_5}, GROUPED
    ),
    _latent("latent"),
    _latent("latent-compressed-queries", 3, head_dim=6, q_rank=5, rope_head_dim=2),
    _differential("differential", 0, HEADS),
    _differential("differential-grouped", 3, GROUPED),
    _with_memory("cross-attention", att.CrossAttention, softmax.cross_attention, **HEADS),
    _with_memory("cross-attention-grouped", att.CrossAttention, softmax.cross_attention, {"bias": False}, **GROUPED),
    _with_memory("additive", att.AdditiveAttention, cells.additive_attention),
    _with_memory("additive-dot", att.AdditiveAttention, cells.additive_attention, {"score": att.Dot}, {"score": "dot"}),
    _luong("multiplicative", theirs={"score": "general"}),
    _luong(
        "multiplicative-dot-gru", ours={"score": att.Dot, "recurrence": rec.GRU}, theirs={"score": "dot", "cell": "gru"}
    ),
    _luong("multiplicative-concat", ours={"score": att.Additive}, theirs={"score": "concat"}),
    _luong("multiplicative-local", theirs={"score": "general"}, window=2),
    _luong("multiplicative-fed", ours={"input_feeding": True}, theirs={"score": "general"}),
    _luong("multiplicative-local-fed-gru", ours=_LOCAL_FED_GRU, theirs={"score": "concat", "cell": "gru", "window": 2}),
    _mixer("gru", rec.GRU, cells.gru, kind={"every_encoding": True}),
    _mixer("lstm", rec.LSTM, cells.lstm),
    _mixer("rnn", rec.RNN, cells.rnn),
    _mixer("gru-stacked", rec.GRU, cells.gru, {"num_layers": 2}),
    _mixer("lstm-stacked", rec.LSTM, cells.lstm, {"num_layers": 3, "forget_bias": 1.0}),
    _mixer("rnn-relu", rec.RNN, cells.rnn, {"nonlinearity": "relu"}, {"relu": True}),
    _mixer("rnn-looped", rec.RNN, cells.rnn, {"num_layers": 2, "looped": True}),
    _mixer("gru-both-ways", rec.GRU, cells.gru, {"bidirectional": True}, kind={"causal": False}),
    _mixer("lstm-both-ways", rec.LSTM, cells.lstm, {"num_layers": 2, "bidirectional": True}, kind={"causal": False}),
    _mixer("rnn-both-ways", rec.RNN, cells.rnn, {"bidirectional": True}, kind={"causal": False}),
    _in_chunks("lru", rec.LRU, scans.lru),
    _in_chunks("linoss", rec.LinOSS, scans.linoss),
    _in_chunks("min-gru", rec.MinGRU, scans.min_gru),
    _in_chunks("min-gru-wide", rec.MinGRU, scans.min_gru, {"expand": 2}),
    _in_chunks("min-lstm", rec.MinLSTM, scans.min_lstm),
    _in_chunks("s4d", rec.S4D, scans.s4d, {"d_state": 6}),
    _in_chunks("rg-lru", rec.RGLRU, scans.rg_lru, {"d_state": 24, "num_heads": 3}),
    _in_chunks("mamba", rec.Mamba, scans.mamba, {"d_state": 3}),
    _mixer("ngram-window", rec.NGramWindow, scans.ngram_window, window=3),
    _mixer("cbow", rec.CBOW, scans.cbow, window=3),
    _mixer("causal-conv", rec.CausalConv, scans.causal_conv, theirs={"dilation": 1}),
    _mixer("causal-conv-dilated", _second_layer_conv, scans.causal_conv, theirs={"dilation": 3}),
    *(
        _in_chunks(f"linear-{phi}", att.LinearAttention, linear.linear_attention, num_heads=2, feature_map=phi)
        for phi in ("elu", "relu", "softmax")
    ),
    _in_chunks(
        "linear-conv",
        att.LinearAttention,
        linear.linear_attention,
        {"conv_width": 3},
        {"feature_map": "elu"},
        num_heads=2,
    ),
    _in_chunks("retention", att.Retention, linear.retention, num_heads=2),
    _in_chunks("retention-conv", att.Retention, linear.retention, {"conv_width": 4}, num_heads=2),
    _in_chunks("gated-linear", att.GatedLinearAttention, linear.gated_linear_attention, num_heads=2),
    _in_chunks(
        "gated-linear-conv", att.GatedLinearAttention, linear.gated_linear_attention, {"conv_width": 2}, num_heads=2
    ),
    _in_chunks("delta-net", att.DeltaNet, linear.delta_net, num_heads=2),
    _in_chunks("delta-net-no-conv", att.DeltaNet, linear.delta_net, {"conv_width": None}, num_heads=2),
    _in_chunks("delta-net-negative", att.DeltaNet, linear.delta_net, num_heads=2, negative_eigenvalues=True),
    _in_chunks("gated-delta-net", att.GatedDeltaNet, linear.delta_net, theirs={"gated": True}, num_heads=2),
    _in_chunks("gated-delta-product", att.GatedDeltaProduct, linear.gated_delta_product, num_heads=2, writes=2),
    _in_chunks(
        "gated-delta-product-of-three",
        att.GatedDeltaProduct,
        linear.gated_delta_product,
        {"negative_eigenvalues": False},
        {"strongest": 1},
        num_heads=2,
        writes=3,
    ),
    _in_chunks("hgrn2", att.HGRN2, linear.hgrn2, {"num_heads": 2}, {"num_heads": 2, "bound": 0.0}),
    _in_chunks(
        "hgrn2-bounded", att.HGRN2, linear.hgrn2, {"num_heads": 2, "lower_bound": 0.3}, {"num_heads": 2, "bound": 0.3}
    ),
    _in_chunks("kimi-delta", att.KimiDeltaAttention, linear.kimi_delta_attention, num_heads=2),
    _in_chunks("gated-delta-net-2", att.GatedDeltaNet2, linear.gated_delta_net2, num_heads=2),
    *(
        _mixer(
            f"native-sparse-{heads['num_heads']}",
            att.NativeSparseAttention,
            softmax.native_sparse_attention,
            kind={"attends": True},
            block=3,
            k=4,
            window=4,
            **heads,
        )
        for heads in (HEADS, GROUPED)
    ),
    _path("path", **HEADS),
    _path("path-grouped", ours={"parts": [att.ForgetGate]}, **GROUPED),
    _in_chunks("mamba2", att.Mamba2, linear.mamba2, **_MAMBA2, num_groups=1),
    _in_chunks("mamba2-groups", att.Mamba2, linear.mamba2, **_MAMBA2, num_groups=2),
    _mixer("log-linear-mamba2", att.LogLinearMamba2, linear.log_linear_mamba2, **_MAMBA2, num_groups=1, num_levels=4),
    _in_chunks("mamba3", att.Mamba3, linear.mamba3, **_MAMBA3, num_groups=1, rank=1),
    _in_chunks("mamba3-mimo", att.Mamba3, linear.mamba3, **_MAMBA3, num_groups=2, rank=3),
    _in_chunks("mlstm", rec.MLSTM, linear.mlstm, num_heads=2),
    _mixer("slstm", rec.SLSTM, cells.slstm, num_heads=2),
    _in_chunks("rwkv7", rec.RWKV7, linear.rwkv7, head_dim=8),
]
BOTH_WAYS = [mixer for mixer in MIXERS if not mixer.causal]

_scores = partial(PositionCase, acts_on="attention scores")
_variant = partial(PositionCase, every_mixer=False)


def _rope(name: str, reference: naive.NaiveRoPE, **options: Any) -> PositionCase:
    return _variant(f"rope-{name}", partial(pos.RoPE, **options), reference, "queries and keys")


def _concatenated(name: str, encoding: Any, reference: naive.NaiveEncoding, **options: Any) -> PositionCase:
    return _variant(f"{name}-concatenated", partial(encoding, combine="concatenate", **options), reference)


POSITIONS = [
    PositionCase("none", pos.NoPositions, naive.NaiveEncoding()),
    PositionCase("sinusoidal", pos.Sinusoidal, naive.NaiveSinusoidal()),
    PositionCase("learned", pos.Learned, naive.NaiveLearned()),
    PositionCase("rope", pos.RoPE, naive.NaiveRoPE(), "queries and keys"),
    _scores("alibi", pos.ALiBi, naive.NaiveALiBi()),
    _scores("shaw", partial(pos.Shaw, max_distance=5), naive.NaiveShaw(5)),
    _scores("cope", partial(pos.CoPE, num_positions=7), naive.NaiveCoPE()),
    _scores("t5", pos.T5Bias, naive.NaiveT5()),
    _scores(
        "t5-both-ways",
        partial(pos.T5Bias, num_buckets=8, max_distance=20, bidirectional=True),
        naive.NaiveT5(8, 20, True),
        every_mixer=False,
    ),
    _scores(
        "shaw-keys-only",
        partial(pos.Shaw, max_distance=5, relative_values=False),
        naive.NaiveShaw(5),
        every_mixer=False,
    ),
    _variant("integer", partial(pos.Integer, scaled=True, combine="add"), naive.NaiveInteger(longest=MAX_SEQ_LEN)),
    _concatenated("integer", pos.Integer, naive.NaiveInteger("concatenate", MAX_SEQ_LEN), scaled=True),
    _variant("binary", pos.Binary, naive.NaiveBinary()),
    _concatenated("binary", pos.Binary, naive.NaiveBinary("concatenate")),
    _concatenated("sinusoidal", pos.Sinusoidal, naive.NaiveSinusoidal("concatenate")),
    _concatenated("learned", pos.Learned, naive.NaiveLearned("concatenate")),
    _variant("randomized", partial(pos.Randomized, max_position=1000), naive.NaiveRandomized(naive.NaiveSinusoidal())),
    _variant(
        "randomized-learned",
        partial(pos.Randomized, encoding=pos.Learned, max_position=300),
        naive.NaiveRandomized(naive.NaiveLearned()),
    ),
    _rope("partial", naive.NaiveRoPE(parts=0.5), fraction=0.5),
    _rope("linear", naive.NaiveRoPE(naive.linear_theta(4)), scaling=partial(pos.LinearScaling, 4.0)),
    _rope("ntk", naive.NaiveRoPE(naive.ntk_theta(3)), scaling=partial(pos.NTKScaling, 3.0)),
    _rope(
        "yarn",
        naive.NaiveRoPE(naive.yarn_theta(64, 4), temperature=0.1 * math.log(4) + 1),
        scaling=partial(pos.YaRN, original_seq_len=64, factor=4.0),
    ),
    _rope(
        "llama3",
        naive.NaiveRoPE(naive.llama3_theta(64, 4)),
        scaling=partial(pos.Llama3Scaling, original_seq_len=64, factor=4.0),
    ),
    _variant("xpos", pos.XPos, naive.NaiveXPos(MAX_SEQ_LEN // 2), "queries and keys"),
]


def fits(mixer: MixerCase, positions: PositionCase) -> bool:
    """Returns True if the pair is possible: every mixer has embeddings, only some have queries, keys and scores of one
    sequence."""
    weighs_values = positions.factory(D_MODEL, MAX_SEQ_LEN).weighs_values
    return positions.acts_on == "embeddings" or (mixer.attends and (mixer.full_values or not weighs_values))


def in_every_run(mixer: MixerCase, positions: PositionCase) -> bool:
    """Returns True if the pair is tested at every length. Each mixer and encoding has such a pair."""
    default = positions.name == "none" or (positions.name == "rope" and mixer.attends)
    return default or mixer.every_encoding


# One of each way to score. The other mixers, their variants, have one encoding of the scores each.
_EVERY_SCORE = {"attention-grouped", "attention-both-ways", "attention-window", "latent", "differential"}


def _encodings(mixer: MixerCase) -> list[PositionCase]:
    """Encodings that a mixer is tested with. A mixer never sees those of the embeddings, so that one of each kind is
    enough for them."""
    if mixer.name == "attention-grouped":
        return POSITIONS
    common = [case for case in POSITIONS if case.every_mixer and fits(mixer, case)]
    if mixer.every_encoding:
        return common
    scores = [case for case in POSITIONS if case.acts_on == "attention scores" and fits(mixer, case)]
    if scores and mixer.name not in _EVERY_SCORE:
        scores = [scores[MIXERS.index(mixer) % len(scores)]]
    return [case for case in common if case.name in ("none", "rope")] + scores


PAIRS = [(mixer, positions) for mixer in MIXERS for positions in _encodings(mixer)]
CAUSAL_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.causal and not mixer.memory]
MEMORY_PAIRS = [(mixer, positions) for mixer, positions in PAIRS if mixer.memory]
DECODERS = [
    (mixer, positions)
    for mixer, positions in CAUSAL_PAIRS
    if mixer.every_encoding or positions.name == ("rope" if mixer.attends else "none")
]
"""Each mixer of a decoder and each encoding at least once."""


def pair_name(pair: tuple[MixerCase, PositionCase]) -> str:
    return f"{pair[0].name}-{pair[1].name}"


def with_lengths(pairs: list[tuple[MixerCase, PositionCase]]) -> list[Any]:
    """(pair, lengths) as test parameters. A chunk is 64 tokens: one beyond it is in every run, others are slow."""
    found = []
    for pair in pairs:
        found.append(pytest.param(pair, (1, 2, 7, 65) if in_every_run(*pair) else (7,), id=pair_name(pair)))
        if pair[0].in_chunks:
            found.append(pytest.param(pair, (63, 64, 129), id=f"{pair_name(pair)}-more", marks=pytest.mark.slow))
    return found
