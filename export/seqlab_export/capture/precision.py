"""The precisions of a bundle."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, get_args

import torch

Precision = Literal["fp32", "fp16", "bf16", "int8", "int4"]
"""fp32 and fp16 apply to all weights and the arithmetic; bf16 to all weights, see `bfloat16`; int8 and int4 to linear
layers, see `quantize`."""


def check_precision(precision: str) -> None:
    """Raises ValueError if bundles do not support the precision."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")


def in_dtype(model: Any, precision: Precision) -> Any:
    """A copy of a model in fp16 or fp32; for bf16, in fp32 with its weights rounded to bfloat16."""
    copy = deepcopy(model)
    if precision == "bf16":
        copy.to(torch.bfloat16)
    return copy.to(torch.float16 if precision == "fp16" else torch.float32)
