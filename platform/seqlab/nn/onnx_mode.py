"""Whether a model is being captured for ONNX.

Fused kernels and parallel forms that ONNX has no words for are replaced by nodes it has: `RNN`, `GRU`, `LSTM`, and
`Scan` for every other recurrence; or by fused nodes of onnxruntime's own. What is captured so can be exported, and only
exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_emitting = ContextVar("_emitting", default=False)
_fusing = ContextVar("_fusing", default=False)


@contextmanager
def emit_onnx(*, fused: bool = False) -> Iterator[None]:
    """While open, `torch.export` captures recurrences as ONNX nodes, dynamic in batch and length.

    `torch.onnx.is_in_onnx_export()` says as much inside `torch.onnx.export`, but not where a program is
    captured first and handed to it afterwards.

    Args:
        fused: whether nodes of onnxruntime's own (domain com.microsoft) may stand for attention and recurrences.
    """
    tokens = _emitting.set(True), _fusing.set(fused)
    try:
        yield
    finally:
        _emitting.reset(tokens[0])
        _fusing.reset(tokens[1])


def emitting() -> bool:
    """Whether a recurrence must emit ONNX nodes."""
    return _emitting.get() or torch.onnx.is_in_onnx_export()


def fusing() -> bool:
    """Whether it may be emitted as nodes of onnxruntime's own."""
    return _fusing.get()
