"""Multi-head softmax attention with a key-value cache as its state.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import Mixer, State, count_real, real_positions
from seqlab.positions.base import PositionalEncoding
from seqlab.positions.none import NoPositions


class Attention(Mixer):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2), grouped-query with fewer key-value heads
    (Ainslie et al. 2023).

    The state is the cache: `position (B,)`, `key_mask (B, S)`, `k` and `v (B, num_kv_heads, S, K)`; it grows by T
    positions a call. Not causal, it has no state.

    Args:
        num_heads: query heads; must divide d_model.
        num_kv_heads: key and value heads; must divide num_heads. None = num_heads, 1 = multi-query.
        causal: position t sees positions up to t only.
        bias: whether the projections have biases.
        dropout: on the attention weights, in training.
    """

    positions: PositionalEncoding

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        causal: bool = True,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, layer)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"num_heads must divide d_model, got num_heads {num_heads} and d_model {d_model}")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads, got num_kv_heads {num_kv_heads} and num_heads {num_heads}"
            )
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = d_model // num_heads
        self.causal = causal
        self.dropout = dropout
        kv_width = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, kv_width, bias=bias)
        self.v_proj = nn.Linear(d_model, kv_width, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self.attach_positions(NoPositions(d_model, 0))

    def attach_positions(self, positions: PositionalEncoding) -> None:
        positions.attach(self.num_heads, self.head_dim)
        # The model owns the encoding and its parameters; here it is only used.
        object.__setattr__(self, "positions", positions)

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        pad_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        if state is not None:
            self._check_causal()
        q, k, v, new_state = self._project(x, state, pad_mask)
        attn_mask = self._attn_mask(x, new_state, pad_mask, unpadded=state is None and pad_mask is None)
        heads = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=attn_mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and attn_mask is None,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )
        y: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return y, new_state if self.causal else {}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.forward(x_t.unsqueeze(1), state)
        return y.squeeze(1), new_state

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """(B, H, T, S): how much each query of x (B, T, D) attends to each key, rows summing to 1."""
        q, k, _, new_state = self._project(x, state, pad_mask)
        k = k.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        attn_mask = self._attn_mask(x, new_state, pad_mask, unpadded=False)
        assert attn_mask is not None
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if is_bool else scores + attn_mask
        weights: Tensor = scores.softmax(dim=-1)
        return weights

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """Raises ValueError where the attention is not causal: it has no state."""
        self._check_causal()
        weight = self.k_proj.weight
        cache = weight.new_zeros(batch_size, self.num_kv_heads, 0, self.head_dim)
        return {
            "position": weight.new_zeros(batch_size, dtype=torch.int64),
            "key_mask": weight.new_ones(batch_size, 0, dtype=torch.bool),
            "k": cache,
            "v": cache.clone(),
        }

    def state_size(self, seq_len: int) -> int:
        return 2 * seq_len * self.num_kv_heads * self.head_dim if self.causal else 0

    def _check_causal(self) -> None:
        if not self.causal:
            raise ValueError("Attention(causal=False) has no state and no step; use causal=True to decode")

    def _project(self, x: Tensor, state: State | None, pad_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, State]:
        """Queries (B, H, T, K), keys and values (B, num_kv_heads, S, K) with those of the state before them."""
        batch_size, length, _ = x.shape
        start = None if state is None else state["position"]
        q = self.q_proj(x).view(batch_size, length, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch_size, length, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch_size, length, self.num_kv_heads, self.head_dim).transpose(1, 2)
        if self.positions.acts_on == "queries and keys":
            positions = real_positions(start, pad_mask, x)
            q, k = self.positions.rotate(q, k, positions)
        key_mask = x.new_ones(batch_size, length, dtype=torch.bool) if pad_mask is None else pad_mask
        if state is not None:
            k, v = torch.cat((state["k"], k), dim=2), torch.cat((state["v"], v), dim=2)
            key_mask = torch.cat((state["key_mask"], key_mask), dim=1)
        count = count_real(pad_mask, x)
        position = count if start is None else start + count
        return q, k, v, {"position": position, "key_mask": key_mask, "k": k, "v": v}

    def _attn_mask(self, x: Tensor, new_state: State, pad_mask: Tensor | None, *, unpadded: bool) -> Tensor | None:
        """(B, 1 or H, T, S): bool (True = may attend) or, with a score bias, float. None where causality is all.

        `unpadded` says that nothing but causality can mask: neither a state nor a pad. A pad attends to itself, so
        that no row is empty.
        """
        biased = self.positions.acts_on == "attention scores"
        if unpadded and not biased:
            return None
        key_mask = new_state["key_mask"]
        t, s = x.shape[1], key_mask.shape[1]
        query_index = torch.arange(s - t, s, device=x.device)[:, None]
        key_index = torch.arange(s, device=x.device)
        allowed = key_mask[:, None, None, :]
        if self.causal:
            allowed = allowed & (key_index <= query_index)
        allowed = allowed | (key_index == query_index)
        if not biased:
            return allowed
        key_positions = (key_mask.cumsum(dim=1) - 1).clamp(min=0)
        bias = self.positions.bias(key_positions[:, s - t :], key_positions, self.num_heads, x.dtype)
        assert bias is not None
        return bias.masked_fill(~allowed, -torch.inf)
