"""Divergence of distributions over tokens or classes from the float64 reference's. NumPy only.

N positions, C choices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def divergence(
    expected: NDArray[np.generic], logits: NDArray[np.generic]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Kullback-Leibler divergence in nats from the reference's logits (..., C), and whether both have the same most
    likely choice, (N,) both."""
    theirs, ours = _log_softmax(expected), _log_softmax(logits)
    kl = (np.exp(theirs) * (theirs - ours)).sum(axis=-1).ravel()
    return kl, (theirs.argmax(axis=-1) == ours.argmax(axis=-1)).ravel()


def _log_softmax(logits: NDArray[np.generic]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
