"""Small modifications of softmax attention, composed by `Attention(parts=[...])`.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from seqlab.mixer import Cuts
from seqlab.nn.heads import join_heads, split_heads

if TYPE_CHECKING:
    from seqlab.attention.cache import Keys

TIE = 16
"""Largest difference between scores that count as tied, in units of eps times the largest absolute score."""


class AttentionPart(nn.Module, ABC):
    """Modifies attention through the hooks that a subclass overrides.

    `Attention` constructs each part as `Part(d_model, num_heads, head_dim, *, options)`.

    Attributes:
        sees_scores: whether it overrides `bias`, `scores` or `sink`, which rules out fused kernels.
        cuts: tensor-parallel plan over the heads, as `Mixer.cuts`.
    """

    sees_scores: bool = False
    cuts: ClassVar[Cuts] = {}

    def __init__(self, d_model: int, num_heads: int, head_dim: int) -> None:
        super().__init__()

    def cut(self, ranks: int) -> None:
        """Prepares the part for its shard on one of `ranks` ranks, as `Mixer.cut` does."""

    def rows(self, num_heads: int) -> dict[str, tuple[int, ...]]:
        """Shapes (..., K) of the tensors that it caches for one key, by name; `num_heads` are those of this rank."""
        return {}

    def cached(self, x: Tensor, pad_mask: Tensor | None) -> dict[str, Tensor]:
        """Cache entries (B, ..., T, K) of x (B, T, D), by the names of `rows`."""
        return {}

    def flops(self, new: int, seen: int, num_heads: int) -> int:
        """FLOPs of the products in `bias` and `scores`; `new` and `seen` as in `Mixer.flops`."""
        return 0

    def queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Transforms queries (B, H, T, K) and keys (B, num_kv_heads, T, K) before they are rotated."""
        return q, k

    def bias(self, keys: Keys) -> Tensor | None:
        """Term (B, H, T, S) that is added to the scores; None = no term."""
        return None

    def scores(self, scores: Tensor, keys: Keys, allowed: Tensor) -> Tensor:
        """Transforms scaled, unmasked scores (B, H, T, S); `allowed` (B or 1, 1, T, S) is the mask applied next."""
        return scores

    def sink(self) -> Tensor | None:
        """Extra softmax score per head, (H,), that attends to nothing; None = no sink."""
        return None

    def output(self, heads: Tensor, x: Tensor) -> Tensor:
        """Transforms the heads' outputs (B, T, H K) before `out_proj`; x (B, T, D) is the input of attention."""
        return heads


class QueryKeyNorm(AttentionPart):
    """Root mean square norm of each query and key head (Dehghani et al. 2023, "ViT-22B"; Qwen3, Gemma 3)."""

    cuts: ClassVar[Cuts] = {"q_norm": "heads", "k_norm": "heads"}

    def __init__(self, d_model: int, num_heads: int, head_dim: int, *, eps: float = 1e-6) -> None:
        super().__init__(d_model, num_heads, head_dim)
        self.q_norm = nn.RMSNorm(head_dim, eps=eps)
        self.k_norm = nn.RMSNorm(head_dim, eps=eps)

    def queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        # The norm is computed in the dtype of its gains, which is float32 in mixed precision.
        precise = self.q_norm.weight.dtype
        return self.q_norm(q.to(precise)).to(q.dtype), self.k_norm(k.to(precise)).to(k.dtype)


class FullQueryKeyNorm(AttentionPart):
    """Root mean square norm of all query heads together, and of all key heads together (OLMo 2, 2024).

    Args:
        num_kv_heads: number of key heads; None = num_heads.
    """

    def __init__(
        self, d_model: int, num_heads: int, head_dim: int, *, num_kv_heads: int | None = None, eps: float = 1e-6
    ) -> None:
        super().__init__(d_model, num_heads, head_dim)
        self.q_norm = nn.RMSNorm(num_heads * head_dim, eps=eps)
        self.k_norm = nn.RMSNorm((num_heads if num_kv_heads is None else num_kv_heads) * head_dim, eps=eps)

    def queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return _normed(self.q_norm, q), _normed(self.k_norm, k)


def _normed(norm: nn.RMSNorm, heads: Tensor) -> Tensor:
    """Heads (B, H, T, K), normalised together in the dtype of the norm's gains."""
    joined = join_heads(heads).to(norm.weight.dtype)  # (B, T, H K)
    return split_heads(norm(joined).to(heads.dtype), heads.shape[-1])


class LogitSoftCap(AttentionPart):
    """Soft-capped scores, cap tanh(scores / cap) (Bello et al. 2017; Gemma 2, section 2).

    Args:
        cap: bound on the absolute score; must be positive.
    """

    sees_scores = True

    def __init__(self, d_model: int, num_heads: int, head_dim: int, *, cap: float = 50.0) -> None:
        super().__init__(d_model, num_heads, head_dim)
        if cap <= 0:
            raise ValueError(f"the cap of LogitSoftCap must be positive, got {cap}")
        self.cap = cap

    def scores(self, scores: Tensor, keys: Keys, allowed: Tensor) -> Tensor:
        return self.cap * torch.tanh(scores / self.cap)


class AttentionSink(AttentionPart):
    """Learned score per head that takes part in the softmax but has no value, so that a head can attend to nothing
    (Miller 2023, "softmax1"; gpt-oss)."""

    sees_scores = True

    def __init__(self, d_model: int, num_heads: int, head_dim: int) -> None:
        super().__init__(d_model, num_heads, head_dim)
        self.logit = nn.Parameter(torch.zeros(num_heads))

    def sink(self) -> Tensor:
        return self.logit


class OutputGate(AttentionPart):
    """The heads' outputs times sigmoid(gate_proj(x)) (Qiu et al. 2025, "Gated attention for LLMs", equation 5).

    Args:
        per: whether each channel has a gate, or each head one gate for all its channels.
    """

    cuts: ClassVar[Cuts] = {"gate_proj": "columns"}

    def __init__(
        self, d_model: int, num_heads: int, head_dim: int, *, per: Literal["channel", "head"] = "channel"
    ) -> None:
        super().__init__(d_model, num_heads, head_dim)
        self.repeats = head_dim if per == "head" else 1
        self.gate_proj = nn.Linear(d_model, num_heads * head_dim // self.repeats, bias=False)

    def output(self, heads: Tensor, x: Tensor) -> Tensor:
        return heads * torch.sigmoid(self.gate_proj(x)).repeat_interleave(self.repeats, dim=-1)


class TopK(AttentionPart):
    """Restricts each query to the k keys with the highest scores (Zhao et al. 2019, "Explicit sparse transformer",
    equation 3). Keys that tie with the k-th, up to rounding, are kept.

    Args:
        k: number of keys per query, at least 1.
    """

    sees_scores = True

    def __init__(self, d_model: int, num_heads: int, head_dim: int, *, k: int = 8) -> None:
        super().__init__(d_model, num_heads, head_dim)
        if k < 1:
            raise ValueError(f"the k of TopK must be at least 1, got {k}")
        self.k = k

    def scores(self, scores: Tensor, keys: Keys, allowed: Tensor) -> Tensor:
        masked = scores.masked_fill(~allowed, -torch.inf)
        # Padded by k columns, so that a row with fewer than k keys has a k-th score.
        # (B, H, T, S + k)
        padded = torch.cat((masked, masked.new_full((*masked.shape[:-1], self.k), -torch.inf)), dim=-1)
        threshold = padded.topk(self.k, dim=-1).values[..., -1:]  # (B, H, T, 1)
        # Scores of equal keys differ by rounding, and the rounding differs between `step` and `forward`.
        largest = scores.masked_fill(~allowed, 0.0).abs().amax(dim=-1, keepdim=True)  # (B, H, T, 1)
        slack = TIE * torch.finfo(scores.dtype).eps * largest
        return scores.masked_fill(masked < threshold - slack, -torch.inf)
