"""The precisions of a bundle."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, get_args

import torch

Precision = Literal["fp32", "fp16", "int8", "int4"]
"""fp32 and fp16: of all weights and the arithmetic. int8 and int4: of linear layers, see `quantize`."""


def check_precision(precision: str) -> None:
    """Raises ValueError where no bundle can be proven in it."""
    if precision == "bf16":
        raise ValueError(
            "precision bf16 is refused: onnxruntime's CPU provider does not load it, so nothing here can prove it; use "
            "fp16"
        )
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")


def in_dtype(model: Any, precision: Precision) -> Any:
    """A copy of a model whose weights have the dtype that this precision stores or, quantised, computes in."""
    return deepcopy(model).to(torch.float16 if precision == "fp16" else torch.float32)
