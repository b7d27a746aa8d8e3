"""Parts that every model shares."""

from seqlab.nn.block import Block
from seqlab.nn.feed_forward import GELU, FeedForward, SwiGLU
from seqlab.nn.norm import LayerNorm, Norm, RMSNorm
from seqlab.nn.stack import MixerFactory, Stack

__all__ = ["GELU", "Block", "FeedForward", "LayerNorm", "MixerFactory", "Norm", "RMSNorm", "Stack", "SwiGLU"]
