"""Heads: their count, and keys and values that several of them share."""

from __future__ import annotations

import torch
from torch import Tensor


def check_heads(num_heads: int, width: int, what: str = "d_model") -> None:
    """Raises ValueError where `num_heads` heads do not divide a width evenly."""
    if num_heads < 1 or width % num_heads:
        raise ValueError(f"num_heads must divide {what}, got num_heads {num_heads} and {what} {width}")


def repeat_heads(kv: Tensor, num_heads: int) -> Tensor:
    """kv (B, num_kv_heads, S, K) as (B, num_heads, S, K): query head h reads h // (num_heads / num_kv_heads).

    Not by repeat_interleave, whose strides torch.export cannot tell for every S.
    """
    group = num_heads // kv.shape[1]
    if group == 1:
        return kv
    return torch.cat([head for head in torch.split(kv, 1, dim=1) for _ in range(group)], dim=1)
