"""Softmax attention and its relatives, one idea a file."""

from seqlab.attention.additive import AdditiveAttention
from seqlab.attention.alignment import Additive, AlignmentScore, Dot, General
from seqlab.attention.cross import CrossAttention
from seqlab.attention.differential import DifferentialAttention
from seqlab.attention.latent import LatentAttention
from seqlab.attention.multiplicative import MultiplicativeAttention
from seqlab.attention.parts import AttentionPart, AttentionSink, LogitSoftCap, OutputGate, QueryKeyNorm, TopK
from seqlab.attention.patterns import Bidirectional, Causal, Pattern, PrefixCausal, SlidingWindow
from seqlab.attention.softmax import Attention

__all__ = [
    "Additive",
    "AdditiveAttention",
    "AlignmentScore",
    "Attention",
    "AttentionPart",
    "AttentionSink",
    "Bidirectional",
    "Causal",
    "CrossAttention",
    "DifferentialAttention",
    "Dot",
    "General",
    "LatentAttention",
    "LogitSoftCap",
    "MultiplicativeAttention",
    "OutputGate",
    "Pattern",
    "PrefixCausal",
    "QueryKeyNorm",
    "SlidingWindow",
    "TopK",
]
