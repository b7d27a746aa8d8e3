"""Decoding: one loop for every model. NumPy only; `torch_model` adapts PyTorch models."""

from seqlab.decoding.beam import BeamDecoder, Hypothesis, beam_search
from seqlab.decoding.generate import Decoder, generate, padded_right
from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.sampling import GREEDY, Sampling, choose
from seqlab.decoding.text import TextCodec, WrittenIds

__all__ = [
    "FREE",
    "GREEDY",
    "BeamDecoder",
    "Decoder",
    "Hypothesis",
    "Repetition",
    "Sampling",
    "TextCodec",
    "WrittenIds",
    "beam_search",
    "choose",
    "generate",
    "padded_right",
]
