"""Laws of a mixer: the invariants that decoding, export and the runtimes rely on.

Each law takes a subject and a length and yields errors that should be zero up to rounding. The tests check every block
against the laws in float64, and `seqlab conformance` measures the errors.
"""

from seqlab.laws.book import BOTH_WAYS, CAUSAL, GARBAGE
from seqlab.laws.subject import LIMIT, Law, Subject, WithMemory, error

__all__ = ["BOTH_WAYS", "CAUSAL", "GARBAGE", "LIMIT", "Law", "Subject", "WithMemory", "error"]
