"""Multi-head latent attention: caches one compressed vector per token, shared by all heads' keys and values.

B batch, T query length, S key length, D d_model, H heads, K head_dim, R rope_head_dim, C kv_rank.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.patterns import Causal
from seqlab.attention.scores import Scoring, SelfAttention, allowed_pairs, scores_of
from seqlab.mixer import State
from seqlab.nn.heads import check_grouped_heads, join_heads, split_heads
from seqlab.nn.padding import real_positions
from seqlab.positions.base import NoPositions, PositionalEncoding


class LatentAttention(SelfAttention):
    """Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1, equations 9 to 19), with the RMS norms
    of its section 3.1.2 on the compressed vectors.

    A token's keys and values are up-projections of c = norm(W x) with C channels. Positions are encoded in R extra
    channels of each query and in one R-channel key shared by all heads. `forward` materialises keys and values;
    `step` instead absorbs the key up-projection into the query and the value up-projection into the output.

    The state is the cache: `position (B,)`, `key_mask (B, S)` and `latent (B, S, C + R)`. It holds C + R numbers per
    token, compared with 2 H K for standard attention.

    Args:
        num_heads: number of heads H.
        head_dim: channels K of queries, keys and values, without the R rotary channels; None = d_model / num_heads,
            which must be a whole number.
        kv_rank: channels C of the compressed key-value vector; None = 4 K, as in the paper.
        q_rank: channels of the compressed query vector; None = queries are not compressed.
        rope_head_dim: channels R that a rotary encoding rotates; None = K / 2, as in the paper.
        dropout: dropout probability on the attention weights, in training.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        head_dim: int | None = None,
        kv_rank: int | None = None,
        q_rank: int | None = None,
        rope_head_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, layer)
        check_grouped_heads(d_model, num_heads, num_heads, head_dim)
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.kv_rank = 4 * self.head_dim if kv_rank is None else kv_rank
        self.rope_head_dim = self.head_dim // 2 if rope_head_dim is None else rope_head_dim
        sizes = {"head_dim": self.head_dim, "kv_rank": self.kv_rank, "rope_head_dim": self.rope_head_dim}
        for name, size in (sizes | ({} if q_rank is None else {"q_rank": q_rank})).items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.rows = {"latent": (self.kv_rank + self.rope_head_dim,)}
        self.scoring = Scoring(Causal(), NoPositions(d_model, 0), (self.head_dim + self.rope_head_dim) ** -0.5)
        self.dropout = dropout
        self.q_down_proj = None if q_rank is None else nn.Linear(d_model, q_rank, bias=False)
        self.q_norm = None if q_rank is None else nn.RMSNorm(q_rank, eps=1e-6)
        q_width = num_heads * (self.head_dim + self.rope_head_dim)
        self.q_proj = nn.Linear(d_model if q_rank is None else q_rank, q_width, bias=False)
        self.kv_down_proj = nn.Linear(d_model, self.kv_rank + self.rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(self.kv_rank, eps=1e-6)
        self.k_proj = nn.Linear(self.kv_rank, num_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(self.kv_rank, num_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(num_heads * self.head_dim, d_model, bias=False)

    def attach_positions(self, positions: PositionalEncoding) -> None:
        """Attaches rotary encodings to the R rotary channels only, and score biases to whole queries and keys."""
        if positions.weighs_values:
            raise ValueError(
                f"{type(positions).__name__} adds vectors to the values, which {type(self).__name__} does not store; "
                "use positions that leave values unchanged"
            )
        rotary = positions.acts_on == "queries and keys"
        positions.attach(self.num_heads, self.rope_head_dim if rotary else self.head_dim + self.rope_head_dim)
        self.scoring = self.scoring._replace(positions=positions)

    def flops(self, new: int, seen: int) -> int:
        if new == 1:  # a decode step attends to the compressed cache directly
            widths = self.kv_rank + self.rope_head_dim, self.kv_rank
        else:
            widths = self.head_dim + self.rope_head_dim, self.head_dim
        return self.flops_of_heads(new, seen, self.num_heads, *widths)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        q, keys = self._project(x, state, pad_mask)  # q (B, H, T, K + R)
        k, v = self._expanded(keys)  # (B, H, S, K + R), (B, H, S, K)
        heads = self.attend(q, k, v, keys)  # (B, H, T, K)
        y: Tensor = self.out_proj(join_heads(heads))  # (B, T, D)
        return y, keys.state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step. With an encoding that biases the scores, keys and values are materialised here too."""
        if self.scoring.positions.acts_on == "attention scores":
            y, new_state = self.forward(x_t.unsqueeze(1), state)  # y (B, 1, D)
            return y.squeeze(1), new_state
        q, keys = self._project(x_t.unsqueeze(1), state, None)  # q (B, H, 1, K + R)
        latent = keys.entries["latent"]  # (B, S, C + R)
        # q W c = (q W) c: all heads share one key, so they act as H queries of a single head.
        # (B, 1, H, K) and (B, 1, H, R)
        plain, rotated = torch.split(q.transpose(1, 2), [self.head_dim, self.rope_head_dim], dim=-1)
        # (H, K, C) each
        k_weight, v_weight = (
            proj.weight.view(self.num_heads, self.head_dim, -1) for proj in (self.k_proj, self.v_proj)
        )
        absorbed = torch.einsum("bthk,hkc->bthc", plain, k_weight)  # (B, 1, H, C)
        mixed = F.scaled_dot_product_attention(
            torch.cat((absorbed, rotated), dim=-1),  # (B, 1, H, C + R)
            latent.unsqueeze(1),  # (B, 1, S, C + R)
            latent[..., : self.kv_rank].unsqueeze(1),  # (B, 1, S, C)
            attn_mask=allowed_pairs(self.scoring.pattern, keys).expand(-1, -1, self.num_heads, -1),  # (B, 1, H, S)
            dropout_p=self.dropout_now(),
            scale=self.scoring.scale,
        )  # (B, 1, H, C)
        heads = torch.einsum("bthc,hkc->bthk", mixed, v_weight)  # (B, 1, H, K)
        return self.out_proj(heads.flatten(1)), keys.state  # y (B, D)

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """(B, H, T, S): how much each query of x (B, T, D) attends to each key. Rows sum to 1."""
        q, keys = self._project(x, state, pad_mask)  # q (B, H, T, K + R)
        scores, allowed = scores_of(q, self._expanded(keys)[0], keys, self.scoring)  # (B, H, T, S), (B or 1, 1, T, S)
        return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)

    def _project(self, x: Tensor, state: State | None, pad_mask: Tensor | None) -> tuple[Tensor, Keys]:
        """Queries (B, H, T, K + R) with the last R channels rotated, and the visible cache (B, S, C + R)."""
        compressed = x if self.q_down_proj is None else _normed(self.q_norm, self.q_down_proj(x))
        q = split_heads(self.q_proj(compressed), self.head_dim + self.rope_head_dim)  # (B, H, T, K + R)
        # (B, T, C), (B, T, R)
        latent, k_rope = torch.split(self.kv_down_proj(x), [self.kv_rank, self.rope_head_dim], dim=-1)
        if self.scoring.positions.acts_on == "queries and keys":
            start = None if state is None else state["position"]
            plain, q_rope = torch.split(q, [self.head_dim, self.rope_head_dim], dim=-1)  # (B, H, T, K), (B, H, T, R)
            at = real_positions(start, pad_mask, x)
            # (B, H, T, R), (B, 1, T, R)
            q_rope, k_rope = self.scoring.positions.rotate(q_rope, k_rope.unsqueeze(1), at)
            q, k_rope = torch.cat((plain, q_rope), dim=-1), k_rope.squeeze(1)  # (B, H, T, K + R), (B, T, R)
        latent = torch.cat((_normed(self.kv_norm, latent), k_rope), dim=-1)  # (B, T, C + R)
        return q, self.append(x, {"latent": latent}, state, pad_mask)

    def _expanded(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Keys (B, H, S, K + R) and values (B, H, S, K)."""
        # (B, S, C), (B, S, R)
        latent, k_rope = torch.split(keys.entries["latent"], [self.kv_rank, self.rope_head_dim], dim=-1)
        k, v = (split_heads(proj(latent), self.head_dim) for proj in (self.k_proj, self.v_proj))  # (B, H, S, K) each
        # Each head's keys (B, H, S, K), concatenated with the shared rotary key (B, 1, S, R).
        return torch.cat((k, k_rope.unsqueeze(1).expand(-1, self.num_heads, -1, -1)), dim=-1), v


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    """Applies a norm in the dtype of its gains, which is float32 in mixed precision."""
    assert isinstance(norm, nn.RMSNorm)
    y: Tensor = norm(x.to(norm.weight.dtype))
    return y
