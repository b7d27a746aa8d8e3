"""The delta rule: a write replaces what the key held (Yang et al. 2024).

B batch, T length, D d_model, H heads, K head_dim, W convolution width.
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
from seqlab.nn.short_conv import ShortConv


class DeltaNet(RecurrentMixer):
    """Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule", sections 2.2 and 3.3:
    S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T and o_t = S_t^T q_t / sqrt(K), with q_t and k_t the unit vectors
    along swish(conv(W x)), v_t = swish(conv(W x)) and beta_t = sigmoid(W x); then y = W_o norm(o), the root mean
    square norm of each head.

    The state is `conv (B, W - 1, 3 D)`, the last projected inputs, and `s (B, H, K, K)`.

    Args:
        num_heads: must divide d_model.
        conv_width: W.
        negative_eigenvalues: beta reaches 2, and a write can turn what it finds around (Grazzi et al. 2024).

    Raises:
        ValueError: a number of heads that does not divide d_model.
    """

    looks_back = True

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        conv_width: int = 4,
        negative_eigenvalues: bool = False,
    ) -> None:
        super().__init__(d_model, layer)
        check_heads(num_heads, d_model)
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.conv = ShortConv(3 * d_model, conv_width, bias=False)
        self.beta_proj = nn.Linear(d_model, num_heads, bias=False)
        self.head_norm = RMSNorm(self.head_dim, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        projected = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), dim=-1)
        projected, conv = self.conv(projected, state["conv"], None if real is None else real.sum(dim=1))
        q, k, v = (torch.unflatten(y, -1, (self.num_heads, -1)) for y in F.silu(projected).chunk(3, dim=-1))
        q, k = unit(q), unit(k)
        beta = self.beta_scale * self.beta_proj(x).sigmoid().unsqueeze(-1)
        updates = Updates(q * self.head_dim**-0.5, beta * k, v, torch.zeros_like(beta), read=k)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)
        return self.out_proj(self.head_norm(o.to(x.dtype)).flatten(2)), {"conv": conv, "s": s}

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        s = self.k_proj.weight.new_zeros(batch_size, self.num_heads, self.head_dim, self.head_dim)
        return {"conv": self.conv.init_state(batch_size), "s": s}


def unit(x: Tensor) -> Tensor:
    """x (..., K) divided by its length, with the authors' 1e-6 inside the root; in at least float32."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()
