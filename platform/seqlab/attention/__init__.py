"""Softmax attention and its relatives, one idea a file."""

from seqlab.attention.softmax import Attention

__all__ = ["Attention"]
