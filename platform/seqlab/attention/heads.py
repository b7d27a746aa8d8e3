"""Heads of attention: their counts, and tensors with one dimension for them.

B batch, T length, H heads, K head_dim.
"""

from __future__ import annotations

from torch import Tensor

from seqlab.nn.heads import check_heads


def check_grouped_heads(d_model: int, num_heads: int, num_kv_heads: int, head_dim: int | None = None) -> None:
    """Raises ValueError where key-value heads do not divide heads, or heads d_model while that gives `head_dim`."""
    if num_heads < 1 or head_dim is None:
        check_heads(num_heads, d_model)
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide num_heads, got num_kv_heads {num_kv_heads} and num_heads {num_heads}"
        )


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, T, H K) to (B, H, T, K)."""
    return x.view(*x.shape[:-1], x.shape[-1] // head_dim, head_dim).transpose(1, 2)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, T, K) to (B, T, H K)."""
    return heads.transpose(1, 2).flatten(2)
