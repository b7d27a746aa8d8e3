"""Decoding: one loop for every model. NumPy only; `torch_model` is the adapter for PyTorch."""

from seqlab.decoding.beam import BeamDecoder, Hypothesis, beam_search
from seqlab.decoding.generate import Decoder, generate
from seqlab.decoding.sampling import GREEDY, Sampling, choose
from seqlab.decoding.text import generate_text

__all__ = [
    "GREEDY",
    "BeamDecoder",
    "Decoder",
    "Hypothesis",
    "Sampling",
    "beam_search",
    "choose",
    "generate",
    "generate_text",
]
