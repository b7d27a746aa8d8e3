"""The laws of a mixer: what decoding, export and the runtimes rest on.

Each takes a subject and a length and gives what it finds: errors that should be none but for rounding. The tests hold
every block to them in float64, and `seqlab conformance` measures them.
"""

from seqlab.laws.book import BOTH_WAYS, CAUSAL, GARBAGE
from seqlab.laws.subject import LIMIT, Law, Subject, WithMemory, error

__all__ = ["BOTH_WAYS", "CAUSAL", "GARBAGE", "LIMIT", "Law", "Subject", "WithMemory", "error"]
