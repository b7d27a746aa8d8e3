"""PyTorch's own error against the float64 copy of a model, which determines the error budget of a runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.cases import Arrays, relative_errors, rms

SAME = 1e-9
"""Maximum difference of a model's step and forward in float64, relative to the RMS of each output."""


def errors_at_lengths(names: Sequence[str], texts: Sequence[Sequence[Arrays]], expected: Arrays) -> list[float]:
    """The relative RMS error at each length, for each way in which PyTorch read a text.

    Args:
        names: outputs that are judged together.
        texts: outputs by length: first the reference's, then the outputs of each way.
        expected: the reference's outputs of all lengths, whose RMS is the unit of the errors.
    """
    return [
        rms(np.concatenate([_difference(some[name], exact[name]) / (rms(expected[name]) or 1.0) for name in names]))
        for found in texts[1:]
        for some, exact in zip(found, texts[0], strict=True)
    ]


def largest(errors: Sequence[float], not_finite: str) -> float:
    """The largest of PyTorch's errors.

    Raises:
        ValueError: an error is not finite; the message is based on `not_finite`.
    """
    own = float(np.max(errors))
    if not np.isfinite(own):
        raise ValueError(
            f"the bundle was not written: PyTorch's own {not_finite}: a number is too large for it; export in fp32 or "
            "bf16"
        )
    return own


def check_step(stepped: Arrays, expected: Arrays, case: str) -> None:
    """Rejects a model whose step and forward differ in float64 by more than rounding, in the logits or in the state. A
    budget based on PyTorch's own error would hide the difference.

    Raises:
        ValueError: the outputs differ by more than `SAME`.
    """
    for name in (name for name, array in expected.items() if array.size):
        found = rms(relative_errors(stepped, expected, [name]))
        if not found <= SAME:
            told = f"differ by {found:.1e} in float64 ({case}, {name})"
            raise ValueError(f"this model's step and forward {told}; they must agree")


def _difference(some: NDArray[Any], exact: NDArray[Any]) -> NDArray[Any]:
    return some.astype(np.float64) - exact.astype(np.float64)
