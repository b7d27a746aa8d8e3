"""Every concrete mixer and every positional encoding. A new one is one line here, and is held to all the laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from references.attention import softmax_attention
from references.linear_recurrence import causal_conv, cbow, lru, mamba, min_gru, min_lstm, ngram_window, rg_lru, s4d
from references.positions import NaiveALiBi, NaiveEncoding, NaiveLearned, NaiveRoPE, NaiveSinusoidal
from references.recurrence import gru, lstm, rnn
from seqlab.attention import Attention
from seqlab.mixer import Mixer
from seqlab.positions import ALiBi, Learned, NoPositions, PositionalEncoding, RoPE, Sinusoidal
from seqlab.recurrence import CBOW, GRU, LRU, LSTM, RGLRU, RNN, S4D, CausalConv, Mamba, MinGRU, MinLSTM, NGramWindow

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


def _second_layer_conv(d_model: int, layer: int) -> Mixer:
    return CausalConv(d_model, layer + 1, width=2, dilation_growth=3)


MIXERS = [
    _attention("attention", num_heads=2, num_kv_heads=2),
    _attention("attention-grouped", num_heads=4, num_kv_heads=2),
    _attention("attention-multi-query", num_heads=2, num_kv_heads=1, bias=False),
    _attention("attention-both-ways", num_heads=2, num_kv_heads=2, causal=False),
    _attention("attention-both-ways-grouped", num_heads=4, num_kv_heads=2, causal=False),
    MixerCase("gru", GRU, gru, attends=False),
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
    MixerCase("s4d", partial(S4D, d_state=6), s4d, attends=False),
    MixerCase("rg-lru", partial(RGLRU, d_state=24, num_heads=3), rg_lru, attends=False),
    MixerCase("mamba", partial(Mamba, d_state=3), mamba, attends=False),
    MixerCase("ngram-window", partial(NGramWindow, window=3), partial(ngram_window, window=3), attends=False),
    MixerCase("cbow", partial(CBOW, window=3), partial(cbow, window=3), attends=False),
    MixerCase("causal-conv", CausalConv, partial(causal_conv, dilation=1), attends=False),
    MixerCase("causal-conv-dilated", _second_layer_conv, partial(causal_conv, dilation=3), attends=False),
    MixerCase("min-lstm", MinLSTM, min_lstm, attends=False),
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
