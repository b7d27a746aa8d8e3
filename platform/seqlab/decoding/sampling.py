"""Choice of a token from logits, specified exactly enough that every port chooses the same token.

V vocabulary, B batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.philox import uniform


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of `choose`.

    Attributes:
        temperature: divides the logits; 0 = greedy.
        top_k: keep only the k likeliest tokens; None = all.
        top_p: keep the smallest set of likeliest tokens whose total probability reaches this value; 1 = all.
        min_p: keep tokens at least this fraction as likely as the likeliest; 0 = all (Nguyen et al. 2024).
        seed: 64-bit key of the random numbers.

    Raises:
        ValueError: an option is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be at least 0 and finite, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be from 0 to 1, got {self.min_p}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2^64 - 1, got {self.seed}")


GREEDY = Sampling(temperature=0.0)


def choose(logits: NDArray[np.floating], sampling: Sampling, *, step: int, row: int) -> int:
    """Chooses a token from logits (V,) at generated position `step` (from 0) of batch row `row`.

    Temperature 0: the largest logit, ties to the lowest id. Otherwise, all in float64:

    1. Sort the tokens by descending logit, equal logits by ascending id. Keep the first top_k.
    2. w[i] = exp((logit[i] - logit[0]) / temperature), in that order. Keep the tokens with w[i] >= min_p.
    3. c[i] = w[0] + ... + w[i], summed sequentially. Let c be the last c[i].
    4. Keep up to and including the first i with c[i] >= top_p * c. Let c now be that c[i].
    5. Choose the first i with c[i] > u * c, where u = `philox.uniform(seed, step, row)`.

    Raises:
        ValueError: the largest logit is not finite.
    """
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        raise ValueError(f"cannot choose a token: the model's largest logit is {logits[best]}")
    if sampling.temperature == 0:
        return best
    scores = logits.astype(np.float64)
    order = np.argsort(-scores, kind="stable")[: sampling.top_k]
    scores = scores[order]
    weights = np.exp((scores - scores[0]) / sampling.temperature)
    cumulative = np.cumsum(weights[weights >= sampling.min_p])
    last = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1], side="left"))
    point = uniform(sampling.seed, step, row) * cumulative[last]
    return int(order[np.searchsorted(cumulative[: last + 1], point, side="right")])
