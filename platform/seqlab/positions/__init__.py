"""Positional encodings, one idea a file."""

from seqlab.positions.alibi import ALiBi
from seqlab.positions.base import PositionalEncoding
from seqlab.positions.binary import Binary
from seqlab.positions.integer import Integer
from seqlab.positions.learned import Learned
from seqlab.positions.none import NoPositions
from seqlab.positions.rope import RoPE
from seqlab.positions.sinusoidal import Sinusoidal

__all__ = ["ALiBi", "Binary", "Integer", "Learned", "NoPositions", "PositionalEncoding", "RoPE", "Sinusoidal"]
