"""Positional encodings, one idea per file."""

from seqlab.positions.alibi import ALiBi
from seqlab.positions.base import NoPositions, PositionalEncoding
from seqlab.positions.cope import CoPE
from seqlab.positions.embedded import Binary, Integer, Learned, Sinusoidal
from seqlab.positions.randomized import Randomized
from seqlab.positions.rope import RoPE
from seqlab.positions.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    NTKScaling,
    RotaryScaling,
    YaRN,
)
from seqlab.positions.shaw import Shaw
from seqlab.positions.t5 import T5Bias
from seqlab.positions.xpos import XPos

__all__ = [
    "ALiBi",
    "Binary",
    "CoPE",
    "Integer",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "NoPositions",
    "NoScaling",
    "PositionalEncoding",
    "Randomized",
    "RoPE",
    "RotaryScaling",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "XPos",
    "YaRN",
]
