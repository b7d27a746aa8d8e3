"""Parameters of each mixer of width 64: a weight or bias more or less would leave stored checkpoints behind."""

from __future__ import annotations

from typing import Any

import torch

from seqlab_export.matrices import conformance

PARAMETERS = {
    "AdditiveAttention": 70080,
    "Attention": 16640,
    "Attention, AttentionSink": 16644,
    "Attention, Bidirectional": 16640,
    "Attention, LogitSoftCap": 16640,
    "Attention, OutputGate": 20736,
    "Attention, PrefixCausal": 16640,
    "Attention, QueryKeyNorm": 16672,
    "Attention, SlidingWindow": 16640,
    "Attention, TopK": 16640,
    "CBOW": 4160,
    "CausalConv": 20608,
    "CrossAttention": 16640,
    "DeltaNet": 17424,
    "DifferentialAttention": 16480,
    "GRU": 24960,
    "GatedDeltaNet": 34344,
    "GatedLinearAttention": 17968,
    "LRU": 16640,
    "LSTM": 33280,
    "LatentAttention": 23104,
    "LinearAttention": 16640,
    "MLSTM": 21064,
    "Mamba": 32640,
    "Mamba2": 34310,
    "MinGRU": 12480,
    "MinLSTM": 16640,
    "MultiplicativeAttention": 45568,
    "NGramWindow": 20608,
    "RGLRU": 21184,
    "RNN": 8320,
    "RWKV7": 29504,
    "Retention": 33024,
    "S4D": 16640,
    "SLSTM": 20800,
}
MIXERS: dict[str, Any] = {**conformance.all_mixers()}


def test_a_mixer_has_so_many_parameters() -> None:
    with torch.device("meta"):
        mixers = {name: mixer(64) for name, mixer in MIXERS.items()}
    found = {name: sum(weight.numel() for weight in mixer.parameters()) for name, mixer in mixers.items()}
    assert found == PARAMETERS
