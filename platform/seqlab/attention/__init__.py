"""Softmax attention and its relatives, one idea per file."""

from seqlab.attention.additive import AdditiveAttention
from seqlab.attention.alignment import Additive, AlignmentScore, Dot, General
from seqlab.attention.cross import CrossAttention
from seqlab.attention.delta_net import DeltaNet
from seqlab.attention.differential import DifferentialAttention
from seqlab.attention.forget_gate import ForgetGate
from seqlab.attention.gated_delta_net import GatedDeltaNet
from seqlab.attention.gated_delta_net2 import GatedDeltaNet2
from seqlab.attention.gated_delta_product import GatedDeltaProduct
from seqlab.attention.gated_linear import GatedLinearAttention
from seqlab.attention.hgrn2 import HGRN2
from seqlab.attention.kimi_delta import KimiDeltaAttention
from seqlab.attention.latent import LatentAttention
from seqlab.attention.linear import LinearAttention
from seqlab.attention.log_linear_mamba2 import LogLinearMamba2
from seqlab.attention.mamba2 import Mamba2
from seqlab.attention.mamba3 import Mamba3
from seqlab.attention.moba import MoBA
from seqlab.attention.multiplicative import MultiplicativeAttention
from seqlab.attention.nsa import NativeSparseAttention
from seqlab.attention.parts import (
    AttentionPart,
    AttentionSink,
    FullQueryKeyNorm,
    LogitSoftCap,
    OutputGate,
    QueryKeyNorm,
    TopK,
)
from seqlab.attention.path import PaTHAttention
from seqlab.attention.patterns import Bidirectional, Causal, Pattern, PrefixCausal, SlidingWindow
from seqlab.attention.retention import Retention
from seqlab.attention.softmax import Attention

__all__ = [
    "HGRN2",
    "Additive",
    "AdditiveAttention",
    "AlignmentScore",
    "Attention",
    "AttentionPart",
    "AttentionSink",
    "Bidirectional",
    "Causal",
    "CrossAttention",
    "DeltaNet",
    "DifferentialAttention",
    "Dot",
    "ForgetGate",
    "FullQueryKeyNorm",
    "GatedDeltaNet",
    "GatedDeltaNet2",
    "GatedDeltaProduct",
    "GatedLinearAttention",
    "General",
    "KimiDeltaAttention",
    "LatentAttention",
    "LinearAttention",
    "LogLinearMamba2",
    "LogitSoftCap",
    "Mamba2",
    "Mamba3",
    "MoBA",
    "MultiplicativeAttention",
    "NativeSparseAttention",
    "OutputGate",
    "PaTHAttention",
    "Pattern",
    "PrefixCausal",
    "QueryKeyNorm",
    "Retention",
    "SlidingWindow",
    "TopK",
]
