"""HGRN2: gated linear attention whose keys are what its forget gates let in (Qin et al. 2024).

B batch, T length, D d_model, H heads, K head_dim, V value width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily
from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.numerics import logsigmoid
from seqlab.nn.updates import Updates


class HGRN2(LinearFamily):
    """Gated linear attention whose key is one minus its forget gate.

    Qin et al. 2024, "HGRN2", equations 5 and 6: S_t = diag(f_t) S_{t-1} + (1 - f_t) v_t^T and o_t = S_t^T q_t with
    f_t = m + (1 - m) sigmoid(W_f x_t) and q_t = swish(W_q x_t); then y = W_o norm(o), an RMS norm of all heads
    together, as in the authors' code. The paper learns the bound m of each layer, rising from layer to layer; here it
    is an option.

    The state is documented in `LinearFamily`.

    Args:
        num_heads: number of heads; must divide d_model.
        head_dim: key width K; None = V = d_model / num_heads.
        lower_bound: smallest forget gate m; 0 in the paper's first layer.

    Raises:
        ValueError: num_heads does not divide d_model, or lower_bound is not in [0, 1).
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        head_dim: int | None = None,
        lower_bound: float = 0.0,
    ) -> None:
        check_heads(num_heads, d_model)
        if not 0 <= lower_bound < 1:
            raise ValueError(f"lower_bound must be in [0, 1), got {lower_bound}")
        value_dim = d_model // num_heads
        head_dim = value_dim if head_dim is None else head_dim
        super().__init__(d_model, layer, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim, conv_width=None)
        self.lower_bound = lower_bound
        self.norm = RMSNorm(d_model, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns, triangular=True)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, raw, v, _ = self.project(x, state, real)  # q and raw (B, T, H, K), v (B, T, H, V)
        k = (1 - self.lower_bound) * torch.sigmoid(-raw)  # (B, T, H, K)
        updates = Updates(F.silu(q), k, v, torch.log1p(-k) if self.lower_bound else logsigmoid(raw))
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, V), s (B, H, K, V)
        return self.out_proj(self.norm(o.to(x.dtype).flatten(2))), {"s": s}  # y (B, T, D)
