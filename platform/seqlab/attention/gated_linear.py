"""Gated linear attention: each channel of the keys forgets at a rate of its own (Yang et al. 2023).

B batch, T length, D d_model, H heads, K head_dim, V value width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import Updates, matrix_recurrence
from seqlab.nn.norm import RMSNorm
from seqlab.nn.recurrent_mixer import RecurrentMixer


class GatedLinearAttention(RecurrentMixer):
    """Yang et al. 2023, "Gated Linear Attention", section 4.4: S_t = diag(alpha_t) S_{t-1} + k_t v_t^T and
    o_t = S_t^T q_t / sqrt(K) with alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16); then y = W_o (swish(W_g x) * norm(o)),
    the norm over each head (the root mean square one of the authors' code).

    The state is `s (B, H, K, V)`.

    Args:
        num_heads: must divide d_model.
        head_dim: K; None = half of V, as in the paper, where V = d_model / num_heads.
        gate_rank: rows of W_1.

    Raises:
        ValueError: a number of heads that does not divide d_model.
    """

    TEMPERATURE = 16.0

    def __init__(
        self, d_model: int, layer: int = 0, *, num_heads: int = 4, head_dim: int | None = None, gate_rank: int = 16
    ) -> None:
        super().__init__(d_model, layer)
        check_heads(num_heads, d_model)
        self.num_heads = num_heads
        self.value_dim = d_model // num_heads
        self.head_dim = max(1, self.value_dim // 2) if head_dim is None else head_dim
        key_width = num_heads * self.head_dim
        self.q_proj = nn.Linear(d_model, key_width, bias=False)
        self.k_proj = nn.Linear(d_model, key_width, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.decay_down = nn.Linear(d_model, gate_rank, bias=False)
        self.decay_up = nn.Linear(gate_rank, key_width)
        self.gate_proj = nn.Linear(d_model, d_model, bias=False)
        self.head_norm = RMSNorm(self.value_dim, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        log_decay = F.logsigmoid(self.decay_up(self.decay_down(x))) / self.TEMPERATURE
        q, k, v, log_decay = (
            torch.unflatten(y, -1, (self.num_heads, -1))
            for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x), log_decay)
        )
        updates = Updates(q * self.head_dim**-0.5, k, v, log_decay)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)
        heads = self.head_norm(o.to(x.dtype)).flatten(2)
        return self.out_proj(F.silu(self.gate_proj(x)) * heads), {"s": s}

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        weight = self.k_proj.weight
        return {"s": weight.new_zeros(batch_size, self.num_heads, self.head_dim, self.value_dim)}
