"""Models: plain nn.Modules over the block library."""

from seqlab.models.decoder import DecoderLM

__all__ = ["DecoderLM"]
