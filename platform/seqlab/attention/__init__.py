"""Softmax attention and its relatives, one idea a file."""

from seqlab.attention.cross import CrossAttention
from seqlab.attention.delta_net import DeltaNet
from seqlab.attention.differential import DifferentialAttention
from seqlab.attention.gated_delta_net import GatedDeltaNet
from seqlab.attention.gated_linear import GatedLinearAttention
from seqlab.attention.latent import LatentAttention
from seqlab.attention.linear import LinearAttention
from seqlab.attention.mamba2 import Mamba2
from seqlab.attention.parts import AttentionPart, AttentionSink, LogitSoftCap, OutputGate, QueryKeyNorm, TopK
from seqlab.attention.patterns import Bidirectional, Causal, Pattern, PrefixCausal, SlidingWindow
from seqlab.attention.retention import Retention
from seqlab.attention.softmax import Attention

__all__ = [
    "Attention",
    "AttentionPart",
    "AttentionSink",
    "Bidirectional",
    "Causal",
    "CrossAttention",
    "DeltaNet",
    "DifferentialAttention",
    "GatedDeltaNet",
    "GatedLinearAttention",
    "LatentAttention",
    "LinearAttention",
    "LogitSoftCap",
    "Mamba2",
    "OutputGate",
    "Pattern",
    "PrefixCausal",
    "QueryKeyNorm",
    "Retention",
    "SlidingWindow",
    "TopK",
]
