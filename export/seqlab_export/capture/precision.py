"""The precisions of a bundle."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, get_args

import torch
from torch import nn

from seqlab.nn.lora import merge

Precision = Literal["fp32", "fp16", "bf16", "int8", "int4"]
"""fp32 and fp16 apply to all weights and the arithmetic; bf16 to all weights, see `bfloat16`; int8 and int4 to linear
layers, see `quantize`."""


def check_precision(precision: str) -> None:
    """Raises ValueError if bundles do not support the precision."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")


def in_dtype(model: Any, precision: Precision) -> Any:
    """A copy of a model in fp16 or fp32; for bf16, in fp32 with its weights rounded to bfloat16. In fp32, the copy of
    an fp32 model shares its weights. LoRA's updates are merged."""
    copy = copy_sharing_weights(model)
    merge(copy)
    if precision == "bf16":
        copy.to(torch.bfloat16)
    return copy.to(torch.float16 if precision == "fp16" else torch.float32)


def copy_sharing_weights(model: Any) -> Any:
    """A copy of a model whose parameters and buffers share the model's memory, until the copy is cast or moved."""
    shared: dict[int, torch.Tensor] = {id(buffer): buffer.detach() for buffer in model.buffers()}
    shared |= {id(given): nn.Parameter(given.detach(), given.requires_grad) for given in model.parameters()}
    return deepcopy(model, shared)
