"""Building blocks shared by all models."""

from seqlab.nn.block import Block
from seqlab.nn.embedding import ScaledEmbedding, TypedEmbedding
from seqlab.nn.feed_forward import GEGLU, GELU, FeedForward, NoFeedForward, ReLU, SquaredReLU, SwiGLU
from seqlab.nn.mixture_of_experts import MixtureOfExperts
from seqlab.nn.norm import LayerNorm, Norm, RMSNorm
from seqlab.nn.residual import LayerScale, NoResidual, Residual, Sum
from seqlab.nn.stack import MixerFactory, Stack

__all__ = [
    "GEGLU",
    "GELU",
    "Block",
    "FeedForward",
    "LayerNorm",
    "LayerScale",
    "MixerFactory",
    "MixtureOfExperts",
    "NoFeedForward",
    "NoResidual",
    "Norm",
    "RMSNorm",
    "ReLU",
    "Residual",
    "ScaledEmbedding",
    "SquaredReLU",
    "Stack",
    "Sum",
    "SwiGLU",
    "TypedEmbedding",
]
