"""Greedy text and its logits, for comparing a runtime with the float64 reference. NumPy only.

R rows, N new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding import Decoder, generate
from seqlab_export.runner.cases import PROOF


@dataclass(frozen=True)
class GreedyTrace:
    """Tokens (R, N) int64, and the logits (R, N, V) from which each token was chosen."""

    tokens: NDArray[np.int64]
    logits: NDArray[np.floating]


def trace(model: Decoder, prompts: Sequence[Sequence[int]], num_tokens: int) -> GreedyTrace:
    """Decodes greedily, without stopping at end-of-text tokens."""
    recorder = _Recorder(model)
    tokens = generate(recorder, prompts, max_new_tokens=num_tokens)
    return GreedyTrace(np.array(tokens, dtype=np.int64), np.stack(recorder.logits, axis=1))


def judge(
    actual: GreedyTrace, expected: GreedyTrace, likeliest: NDArray[np.integer]
) -> Iterator[tuple[NDArray[np.float64], bool, str]]:
    """For each row, the errors of its logits up to the first different token, whether the tokens pass, and where they
    differ. `expected` has the logits of the tokens `likeliest` (R, N, K), best first.

    The tokens pass if they are identical, or if they first differ where the reference's two best logits are closer than
    twice the largest error of the logits: such a difference is due to rounding.
    """
    logits = np.take_along_axis(actual.logits, likeliest, axis=-1)
    for ours, theirs, our_logits, their_logits in zip(
        actual.tokens, expected.tokens, logits, expected.logits, strict=True
    ):
        errors = our_logits.astype(np.float64) - their_logits
        different = np.flatnonzero(ours != theirs)
        if not different.size:
            yield errors, True, ""
            continue
        first = int(different[0])
        best, second = their_logits[first, :2].astype(np.float64)
        largest = float(np.abs(errors[first]).max())
        found = f"the float64 margin is {best - second:.2e} and the largest logit error {largest:.2e}"
        passes = bool(best - second < PROOF["margin_errors"] * largest)
        yield errors[: first + 1], passes, f"differs from token {first} on, where {found}"


class _Recorder:
    """A decoder that records its logits."""

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self.vocab_size = model.vocab_size
        self.max_seq_len = model.max_seq_len
        self.logits: list[NDArray[np.floating]] = []

    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], Any]:
        logits, state = self.model.prefill(tokens, pad_mask)
        self.logits.append(logits)
        return logits, state

    def step(self, tokens: NDArray[np.int64], state: Any) -> tuple[NDArray[np.floating], Any]:
        logits, state = self.model.step(tokens, state)
        self.logits.append(logits)
        return logits, state
