"""The LSTM with a matrix memory of xLSTM (Beck et al. 2024).

B batch, T length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import HeadNorm
from seqlab.nn.numerics import logsigmoid
from seqlab.nn.operation import operation
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.nn.updates import Updates


class MLSTM(RecurrentMixer):
    """Beck et al. 2024, "xLSTM", equations 19-27, stabilised as in their appendix A:

    C_t = f_t C_{t-1} + i_t v_t k_t^T,   n_t = f_t n_{t-1} + i_t k_t,   h_t = C_t q_t / max(|n_t . q_t|, 1),

    with i = exp(w_i . x + b_i), f = sigmoid(w_f . x + b_f) and keys over sqrt(K). Both C and n are kept times exp(-m),
    m_t = max(log f_t + m_{t-1}, log i_t), so that nothing overflows; h does not depend on m. Then
    y = W_o (sigmoid(W_g x) * norm(h)), the norm over each head, as in the authors' xLSTM 7B (Beck et al. 2025). The
    block around it there (up projection, convolution, skip) is the model's here.

    The state is `s (B, H, K, K + 1)`, C transposed and n as its last column, and `m (B, H)`.

    Args:
        num_heads: number of heads; must divide d_model.

    Raises:
        ValueError: num_heads does not divide d_model.
    """

    def __init__(self, d_model: int, layer: int = 0, *, num_heads: int = 4) -> None:
        super().__init__(d_model, layer)
        check_heads(num_heads, d_model)
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.in_gate_proj = nn.Linear(d_model, num_heads, bias=False)
        self.forget_gate_proj = nn.Linear(d_model, num_heads, bias=False)
        # As in the authors' code: the forget gates start open, with a different time scale per head.
        self.in_gate_bias = nn.Parameter(0.1 * torch.randn(num_heads))
        self.forget_gate_bias = nn.Parameter(torch.linspace(3.0, 6.0, num_heads))
        self.gate_proj = nn.Linear(d_model, d_model, bias=False)
        self.head_norm = HeadNorm(num_heads, self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.head_dim + 1)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        heads = (self.num_heads, self.head_dim)
        # (B, T, H, K) each
        q, k, v = (torch.unflatten(proj(x), -1, heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        log_i = self.in_gate_proj(x) + self.in_gate_bias  # (B, T, H)
        log_f = logsigmoid(self.forget_gate_proj(x) + self.forget_gate_bias)  # (B, T, H)
        if real is not None:
            log_i = log_i.masked_fill(~real.unsqueeze(-1), -torch.inf)
            log_f = log_f.masked_fill(~real.unsqueeze(-1), 0.0)

        # h does not depend on m, so no gradient is needed through it.
        start = state["m"].detach()
        m = _stabilisers(log_i.detach(), log_f.detach(), start, single=single)  # (B, T, H)
        before = torch.cat((start.unsqueeze(1), m), dim=1)[:, :-1]  # (B, T, H)
        log_decay = (log_f + (before - m)).unsqueeze(-1)  # (B, T, H, 1)
        weight = (log_i - m).exp().unsqueeze(-1) * self.head_dim**-0.5  # (B, T, H, 1)
        ones = torch.ones_like(v[..., :1])  # (B, T, H, 1)
        updates = Updates(q, weight * k, torch.cat((v, ones), dim=-1), log_decay)
        o, s = matrix_recurrence(updates, state["s"], single=single)  # o (B, T, H, K + 1), s (B, H, K, K + 1)
        divisor = torch.maximum(o[..., -1:].abs(), (-m).exp().unsqueeze(-1))  # (B, T, H, 1)
        h = self.head_norm((o[..., :-1] / divisor).to(x.dtype)).flatten(2)  # (B, T, H K)
        # y (B, T, D)
        return self.out_proj(self.gate_proj(x).sigmoid() * h), {"s": s, "m": m[:, -1].to(state["m"].dtype)}

    def state_spec(self) -> StateSpec:
        matrix = (self.num_heads, self.head_dim, self.head_dim + 1)
        return StateEntry("s", matrix), StateEntry("m", (self.num_heads,))


def _stabilisers(log_i: Tensor, log_f: Tensor, start: Tensor, *, single: bool) -> Tensor:
    """m_t = max(log f_t + m_{t-1}, log i_t): gates (B, T, H) from `start` (B, H) to (B, T, H), in at least float32."""
    wide = torch.promote_types(log_f.dtype, torch.float32)
    log_i, log_f, start = log_i.to(wide), log_f.to(wide), start.to(wide)
    return torch.maximum(log_f + start.unsqueeze(1), log_i) if single else stabilise(log_i, log_f, start)


@operation
def stabilise(log_i: Tensor, log_f: Tensor, start: Tensor) -> Tensor:
    """Parallel form: F_t + max(start, max_{s <= t} (log i_s - F_s)) with F the cumulative sum of log f. Its rounding
    differs from the recurrence's, which is harmless since any m is valid."""
    total = log_f.cumsum(dim=1)
    return total + torch.maximum(start.unsqueeze(1), (log_i - total).cummax(dim=1).values)


def stabilise_step_by_step(log_i: Tensor, log_f: Tensor, start: Tensor) -> Tensor:
    """Sequential reference version of `stabilise`."""

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        m = torch.maximum(now[1] + carry[0], now[0])
        return (m,), m

    return scan_over_time(step, (start,), (log_i, log_f))[0]
