"""Cross-attention: queries from one sequence, keys and values from another.

B batch, T query length, S memory length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.memory import MemoryMixer, masked_softmax
from seqlab.mixer import Cuts, State
from seqlab.nn.heads import check_grouped_heads, join_heads, part_of, repeat_heads, split_heads


class CrossAttention(MemoryMixer):
    """Attention from each position to an encoder's memory (Vaswani et al. 2017, section 3.2.3, "encoder-decoder
    attention"), grouped-query if there are fewer key-value heads (Ainslie et al. 2023). Positions of x do not see each
    other.

    The state holds the memory's keys and values, `memory_k` and `memory_v (B, num_kv_heads, S, K)`, and `memory_mask
    (B, S)`. All are constant, so `state_size` is 0.

    Args:
        num_heads: number of query heads; must divide d_model.
        num_kv_heads: number of key and value heads; must divide num_heads. None = num_heads, 1 = multi-query.
        bias: whether the projections have biases.
        dropout: dropout probability on the attention weights, in training.
    """

    cuts: ClassVar[Cuts] = {"q_proj": "columns", "k_proj": "columns", "v_proj": "columns", "out_proj": "rows"}

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, layer)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_grouped_heads(d_model, num_heads, num_kv_heads)
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = d_model // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def cut(self, ranks: int) -> None:
        self.num_heads = part_of(self.num_heads, ranks, "num_heads")
        self.num_kv_heads = part_of(self.num_kv_heads, ranks, "num_kv_heads")

    def read_dims(self) -> tuple[int | str, ...]:
        return self.num_kv_heads, "M", self.head_dim

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        # (B, num_kv_heads, S, K) each
        return split_heads(self.k_proj(memory), self.head_dim), split_heads(self.v_proj(memory), self.head_dim)

    def flops(self, new: int, seen: int) -> int:
        return 4 * new * seen * self.num_heads * self.head_dim

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """Processes all positions at once: x (B, T, D) to (B, T, D). The state is returned unchanged.

        Raises:
            ValueError: the state is missing or does not match this mixer and batch.
        """
        state = self.begin(x, state)
        # One mask row per query, since not every runtime broadcasts masks.
        attn_mask = state["memory_mask"][:, None, None, :].expand(-1, -1, x.shape[1], -1)  # (B, 1, T, S)
        heads = F.scaled_dot_product_attention(
            split_heads(self.q_proj(x), self.head_dim),  # (B, H, T, K)
            state["memory_k"],  # (B, num_kv_heads, S, K)
            state["memory_v"],  # (B, num_kv_heads, S, K)
            attn_mask=attn_mask,
            dropout_p=self.dropout if self.training else 0.0,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )  # (B, H, T, K)
        y: Tensor = self.out_proj(join_heads(heads))  # (B, T, D)
        return y, dict(state)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.forward(x_t.unsqueeze(1), state)  # y (B, 1, D)
        return y.squeeze(1), state

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """Attention weights (B, H, T, S) of x (B, T, D) over the memory. Rows sum to 1."""
        state = self.begin(x, state)
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, T, K)
        # (B, H, T, K) @ (B, H, K, S)
        scores = q @ repeat_heads(state["memory_k"], self.num_heads).transpose(-2, -1) * self.head_dim**-0.5
        return masked_softmax(scores, state["memory_mask"][:, None, None, :])
