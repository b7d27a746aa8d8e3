"""Whether a model is being captured for ONNX.

Fused kernels and parallel forms that ONNX has no words for are replaced by nodes it has: `RNN`, `GRU`, `LSTM`, and
`Scan` for every other recurrence. What is captured so can be exported, and only exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_emitting = ContextVar("_emitting", default=False)


@contextmanager
def emit_onnx() -> Iterator[None]:
    """While open, `torch.export` captures recurrences as ONNX nodes, dynamic in batch and length.

    `torch.onnx.is_in_onnx_export()` says as much inside `torch.onnx.export`, but not where a program is
    captured first and handed to it afterwards.
    """
    token = _emitting.set(True)
    try:
        yield
    finally:
        _emitting.reset(token)


def emitting() -> bool:
    """Whether a recurrence must emit ONNX nodes."""
    return _emitting.get() or torch.onnx.is_in_onnx_export()
