"""Differential attention: the difference of two attention maps, which cancels noise common to both.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.patterns import Causal
from seqlab.attention.scores import Scoring, SelfAttention, scores_of
from seqlab.mixer import State
from seqlab.nn.heads import check_grouped_heads, join_heads, split_heads
from seqlab.positions.base import NoPositions, PositionalEncoding


class DifferentialAttention(SelfAttention):
    """(softmax(Q1 K1^T / sqrt(K)) - lambda softmax(Q2 K2^T / sqrt(K))) V (Ye et al. 2024, "Differential Transformer",
    equations 1 to 3), with each head's output normalised and scaled by 1 - lambda_init.

    lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init, shared by all heads of a layer, with
    lambda_init = 0.8 - 0.6 exp(-0.3 layer), layer = 0, 1, ... A head has two queries and two keys of K channels and
    a value of 2 K channels. At equal parameter count and K it therefore has half as many heads as standard attention.

    The state is the cache: `position (B,)`, `key_mask (B, S)`, `k (B, 2 num_kv_heads, S, K)`, whose first half holds
    K1, and `v (B, num_kv_heads, S, 2 K)`.

    Args:
        num_heads: number of heads H, with K = d_model / (2 H) channels each; 2 H must divide d_model.
        num_kv_heads: number of key and value heads; must divide num_heads. None = num_heads.
        dropout: dropout probability on both attention maps, in training.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 2,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, layer)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_grouped_heads(d_model, num_heads, num_kv_heads)
        if d_model // num_heads % 2:
            raise ValueError(
                f"a head of DifferentialAttention has two halves, so d_model / num_heads must be even, got {d_model} "
                f"/ {num_heads} = {d_model // num_heads}"
            )
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = d_model // num_heads // 2
        self.rows = {"k": (2 * num_kv_heads, self.head_dim), "v": (num_kv_heads, 2 * self.head_dim)}
        self.scoring = Scoring(Causal(), NoPositions(d_model, 0), self.head_dim**-0.5)
        self.dropout = dropout
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(0.1 * torch.randn(self.head_dim)) for _ in range(4)
        )
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, 2 * num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, 2 * num_kv_heads * self.head_dim, bias=False)
        self.head_norm = nn.RMSNorm(2 * self.head_dim, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def attach_positions(self, positions: PositionalEncoding) -> None:
        """Attaches an encoding for H heads of K channels; it is applied to each of the two maps."""
        if positions.weighs_values:
            raise ValueError(
                f"{type(positions).__name__} adds vectors of head_dim channels to the values, but the values of "
                f"{type(self).__name__} have 2 head_dim channels; use positions that leave values unchanged"
            )
        positions.attach(self.num_heads, self.head_dim)
        self.scoring = self.scoring._replace(positions=positions)

    def flops(self, new: int, seen: int) -> int:
        return 2 * self.flops_of_heads(new, seen, self.num_heads, self.head_dim, 2 * self.head_dim)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        q, keys = self._project(x, state, pad_mask)  # q (B, 2 H, T, K)
        # (B, H, T, 2 K) each
        first, second = (self.attend(q_half, k_half, keys.entries["v"], keys) for q_half, k_half in _halves(q, keys))
        heads = first - self._lambda().to(first.dtype) * second
        # The norm is computed in the dtype of its gains, which is float32 in mixed precision.
        normed = self.head_norm(heads.to(self.head_norm.weight.dtype)) * (1 - self.lambda_init)
        y: Tensor = self.out_proj(join_heads(normed))  # (B, T, D)
        return y, keys.state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.forward(x_t.unsqueeze(1), state)  # y (B, 1, D)
        return y.squeeze(1), new_state

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """Difference (B, H, T, S) of the two maps of x (B, T, D). Rows sum to 1 - lambda; entries can be negative."""
        q, keys = self._project(x, state, pad_mask)  # q (B, 2 H, T, K)
        maps = []
        for q_half, k_half in _halves(q, keys):
            scores, allowed = scores_of(q_half, k_half, keys, self.scoring)  # (B, H, T, S), (B or 1, 1, T, S)
            maps.append(scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1))
        return maps[0] - self._lambda().to(maps[0].dtype) * maps[1]

    def _lambda(self) -> Tensor:
        """Scalar lambda (equation 2)."""
        first, second = (self.lambda_q1 * self.lambda_k1).sum(), (self.lambda_q2 * self.lambda_k2).sum()
        return first.exp() - second.exp() + self.lambda_init

    def _project(self, x: Tensor, state: State | None, pad_mask: Tensor | None) -> tuple[Tensor, Keys]:
        """Queries (B, 2 H, T, K), all Q1 before all Q2, and the keys and values visible to them."""
        # (B, 2 H, T, K), (B, 2 num_kv_heads, T, K)
        q, k = (split_heads(proj(x), self.head_dim) for proj in (self.q_proj, self.k_proj))
        v = split_heads(self.v_proj(x), 2 * self.head_dim)  # (B, num_kv_heads, T, 2 K)
        q, k = self.rotated(q, k, x, state, pad_mask)
        return q, self.append(x, {"k": k, "v": v}, state, pad_mask)


def _halves(q: Tensor, keys: Keys) -> list[tuple[Tensor, Tensor]]:
    """Queries (B, H, T, K) and keys (B, num_kv_heads, S, K) of each of the two maps."""
    return list(zip(q.chunk(2, dim=1), keys.entries["k"].chunk(2, dim=1), strict=True))
