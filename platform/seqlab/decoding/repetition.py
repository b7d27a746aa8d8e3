"""Repetition penalties, applied to logits before a token is chosen.

V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Penalties on tokens that a text, its prompt included, already contains.

    Attributes:
        penalty: positive logits of these tokens are divided by it, the others multiplied (Keskar et al. 2019, "CTRL",
            section 4.1); 1 = no penalty.
        ngram: n-gram size that may not occur twice (Paulus et al. 2017, section 2.5, with n = 3); None = no limit.
            Where every token would repeat an n-gram, all are allowed.

    Raises:
        ValueError: an option is out of range.
    """

    penalty: float = 1.0
    ngram: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.penalty < np.inf:
            raise ValueError(f"the repetition penalty must be above 0 and finite, got {self.penalty}")
        if self.ngram is not None and self.ngram < 1:
            raise ValueError(f"the n of blocked n-grams must be at least 1, got {self.ngram}")

    def apply(self, logits: NDArray[np.floating], text: Sequence[int]) -> NDArray[np.floating]:
        """Penalised logits (V,) after the tokens of `text`, as a new float64 array; unchanged without penalties."""
        if self.penalty == 1 and self.ngram is None:
            return logits
        scores = logits.astype(np.float64)
        seen = np.unique(np.array(text, dtype=np.int64))
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / self.penalty, scores[seen] * self.penalty)
        if self.ngram is not None:
            blocked = np.unique(np.array(self._would_repeat(text), dtype=np.int64))
            if len(blocked) < len(scores):
                scores[blocked] = -np.inf
        return scores

    def _would_repeat(self, text: Sequence[int]) -> list[int]:
        """Tokens that followed an earlier occurrence of the last n - 1 tokens."""
        assert self.ngram is not None
        before = self.ngram - 1
        tail = list(text[len(text) - before :])
        return [text[end] for end in range(before, len(text)) if list(text[end - before : end]) == tail]


FREE = Repetition()
