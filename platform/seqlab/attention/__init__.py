"""Softmax attention and its relatives, one idea a file."""

from seqlab.attention.cross import CrossAttention
from seqlab.attention.differential import DifferentialAttention
from seqlab.attention.latent import LatentAttention
from seqlab.attention.parts import AttentionPart, AttentionSink, LogitSoftCap, OutputGate, QueryKeyNorm, TopK
from seqlab.attention.patterns import Bidirectional, Causal, Pattern, PrefixCausal, SlidingWindow
from seqlab.attention.softmax import Attention

__all__ = [
    "Attention",
    "AttentionPart",
    "AttentionSink",
    "Bidirectional",
    "Causal",
    "CrossAttention",
    "DifferentialAttention",
    "LatentAttention",
    "LogitSoftCap",
    "OutputGate",
    "Pattern",
    "PrefixCausal",
    "QueryKeyNorm",
    "SlidingWindow",
    "TopK",
]
