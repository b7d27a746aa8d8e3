"""What is compared between a runtime and the float64 reference, and what an error is. NumPy only.

B batch, T tokens given, N numbers compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from seqlab_export.manifest import TensorInfo

Arrays = Mapping[str, NDArray[np.generic]]

FORMS = ("prefill", "chunks", "step")
"""One call; two calls, each with half of the tokens; one call a token."""

LOGIT_COLUMNS = 128
STATE_COLUMNS = 4
"""Of longer last dimensions, so many places are compared, evenly spaced, so that golden files stay small."""


def select(array: NDArray[np.generic], info: TensorInfo, pad_mask: NDArray[np.bool_]) -> NDArray[np.generic]:
    """What counts of an output that started from no state: real positions, and a subset of the last dimension.

    Args:
        array: float, or compared whole.
        info: its description, which says where its time dimension is.
        pad_mask: (B, T) bool, True = a real token.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    if isinstance(size := info.dims[-1], int):
        limit = LOGIT_COLUMNS if info.name == "logits" else STATE_COLUMNS
        array = array[..., np.linspace(0, size - 1, min(size, limit)).round().astype(np.int64)]
    times = [axis for axis, dim in enumerate(info.dims) if dim in ("T", "S+T")]
    return np.moveaxis(array, times[0], 1)[pad_mask] if times else array


def rms(values: NDArray[np.generic]) -> float:
    """Root mean square, in float64."""
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))


def error(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.float64]:
    """The difference in float64."""
    return actual.astype(np.float64) - expected.astype(np.float64)
