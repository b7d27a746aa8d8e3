"""Attention heads: checks of their counts, reshaping, and repetition of shared keys and values.

B batch, T query length, S key length, H heads, K head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_heads(num_heads: int, width: int, what: str = "d_model") -> None:
    """Raises ValueError if `num_heads` does not divide a width."""
    if num_heads < 1 or width % num_heads:
        raise ValueError(f"num_heads must divide {what}, got num_heads {num_heads} and {what} {width}")


def head_width(d_model: int, num_heads: int, head_dim: int | None) -> int:
    """head_dim, or d_model / num_heads if it is None; ValueError if num_heads does not divide d_model then."""
    if head_dim is not None:
        return head_dim
    check_heads(num_heads, d_model)
    return d_model // num_heads


def heads_in_groups(inner: int, head_dim: int, num_groups: int) -> int:
    """Number of heads in an inner width, expand * d_model.

    Raises:
        ValueError: head_dim does not divide the width, or num_groups the number of heads.
    """
    if head_dim < 1 or inner % head_dim:
        raise ValueError(f"head_dim must divide expand * d_model, got head_dim {head_dim} and expand * d_model {inner}")
    num_heads = inner // head_dim
    if num_groups < 1 or num_heads % num_groups:
        raise ValueError(
            f"num_groups must divide the number of heads, got num_groups {num_groups} and {num_heads} heads"
        )
    return num_heads


def repeat_heads(kv: Tensor, num_heads: int) -> Tensor:
    """Repeats kv (B, num_kv_heads, S, K) to (B, num_heads, S, K): query head h reads h // (num_heads / num_kv_heads).

        multi-head              grouped-query           multi-query
        4 key-value heads       2 key-value heads       1 key-value head

        q0   q1   q2   q3       q0   q1   q2   q3       q0   q1   q2   q3
        |    |    |    |        '-+--'    '--+-'        '----+---+----'
        kv0  kv1  kv2  kv3       kv0        kv1                kv0

    Avoids repeat_interleave, whose strides torch.export cannot determine for every S.
    """
    group = num_heads // kv.shape[1]
    if group == 1:
        return kv
    return torch.cat([head for head in torch.split(kv, 1, dim=1) for _ in range(group)], dim=1)  # (B, num_heads, S, K)


def check_grouped_heads(d_model: int, num_heads: int, num_kv_heads: int, head_dim: int | None = None) -> None:
    """Raises ValueError if num_kv_heads does not divide num_heads or, with head_dim None, num_heads does not divide
    d_model."""
    if num_heads < 1 or head_dim is None:
        check_heads(num_heads, d_model)
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide num_heads, got num_kv_heads {num_kv_heads} and num_heads {num_heads}"
        )


def part_of(count: int, ranks: int, what: str) -> int:
    """Number of heads or channels per rank, out of `count`, in a tensor-parallel layer.

    Raises:
        ValueError: `ranks` does not divide `count`.
    """
    if count % ranks:
        raise ValueError(
            f"{what} {count} cannot be divided evenly over {ranks} ranks; set --tp to a number that divides it"
        )
    return count // ranks


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, T, H K) to (B, H, T, K)."""
    return x.view(*x.shape[:-1], x.shape[-1] // head_dim, head_dim).transpose(1, 2)  # (B, T, H, K) to (B, H, T, K)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, K) to (B, T, H K)."""
    return heads.transpose(1, 2).flatten(2)  # (B, T, H, K) to (B, T, H K)
