"""Heads: their counts, tensors with a dimension for them, and keys and values that several of them share.

B batch, T query length, S key length, H heads, K head_dim.
"""

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


def check_grouped_heads(d_model: int, num_heads: int, num_kv_heads: int, head_dim: int | None = None) -> None:
    """Raises ValueError where key-value heads do not divide heads, or heads d_model while that gives `head_dim`."""
    if num_heads < 1 or head_dim is None:
        check_heads(num_heads, d_model)
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide num_heads, got num_kv_heads {num_kv_heads} and num_heads {num_heads}"
        )


def part_of(count: int, ranks: int, what: str) -> int:
    """Number of the `count` heads or channels that each rank of a cut layer has.

    Raises:
        ValueError: the ranks do not divide them.
    """
    if count % ranks:
        raise ValueError(f"{what} {count} cannot be shared evenly by {ranks} ranks; give --tp a number that divides it")
    return count // ranks


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, T, H K) to (B, H, T, K)."""
    return x.view(*x.shape[:-1], x.shape[-1] // head_dim, head_dim).transpose(1, 2)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, K) to (B, T, H K)."""
    return heads.transpose(1, 2).flatten(2)
