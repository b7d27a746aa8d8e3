"""The LSTM with exponential gates of xLSTM (Beck et al. 2024).

B batch, T length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.heads import check_heads
from seqlab.nn.norm import HeadNorm
from seqlab.nn.numerics import logsigmoid
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.scan import Carry, scan_over_time

NAMES = ("h", "c", "n", "m")
LOWEST = -1e4  # m before the first token: its forget gate is then 0, as exp(-inf) is, and no number is infinite


class SLSTM(RecurrentMixer):
    """Beck et al. 2024, "xLSTM", equations 8-18: gates z, i, f, o are W x_t + R h_{t-1} + b, R has a block per head;

    c_t = f_t c_{t-1} + i_t tanh(z_t),   n_t = f_t n_{t-1} + i_t,   h_t = sigmoid(o_t) c_t / n_t,

    with i exponential and f a sigmoid. c and n are kept times exp(-m), m_t = max(log f_t + m_{t-1}, log i_t)
    (equations 15-17). The output is the group norm of h, as in the paper's block. What h_{t-1} feeds back is not
    linear: training runs step after step.

    The state is `h`, `c`, `n` and `m`, (B, H, K) each.

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
        self.in_proj = nn.Linear(d_model, 4 * d_model, bias=False)
        # As in the authors' code: no feedback at initialisation, and a different forget-gate time scale per channel.
        self.feedback_weight = nn.Parameter(torch.zeros(num_heads, self.head_dim, 4 * self.head_dim))
        remember, zeros = torch.linspace(3.0, 6.0, self.head_dim), torch.zeros(self.head_dim)
        self.bias = nn.Parameter(torch.cat((zeros, zeros, remember, zeros)).repeat(num_heads, 1))
        self.head_norm = HeadNorm(num_heads, self.head_dim, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return 2 * new * self.feedback_weight.numel()

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        gates = torch.unflatten(self.in_proj(x), -1, (self.num_heads, -1)) + self.bias  # (B, T, H, 4 K)
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
        kept = real[:, :, None, None]  # (B, T, 1, 1)
        carry = tuple(state[name].to(gates.dtype) for name in NAMES)  # (B, H, K) each
        if single:
            carry, h = self._cell(carry, (gates.squeeze(1), kept.squeeze(1)))
            h = h.unsqueeze(1)  # (B, 1, H, K)
        else:
            h, carry = scan_over_time(self._cell, carry, (gates, kept))  # h (B, T, H, K)
        new_state = {name: new.to(state[name].dtype) for name, new in zip(NAMES, carry, strict=True)}
        return self.head_norm(h.to(x.dtype)).flatten(2), new_state  # y (B, T, D)

    def state_spec(self) -> StateSpec:
        dims = (self.num_heads, self.head_dim)
        return *(StateEntry(name, dims) for name in NAMES[:3]), StateEntry("m", dims, initial=LOWEST)

    def _cell(self, carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        """One step: the gates' inputs (B, H, 4 K), and whether the token is real (B, 1, 1)."""
        h, c, n, m = carry
        given, kept = now
        fed_back = torch.bmm(h.transpose(0, 1), self.feedback_weight).transpose(0, 1)  # (H, B, K) @ (H, K, 4 K)
        z, log_i, raw_f, o = (given + fed_back).chunk(4, dim=-1)  # (B, H, K) each
        log_f = logsigmoid(raw_f)
        # h does not depend on m, so no gradient is needed through it.
        new_m = torch.maximum(log_f + m, log_i).detach()
        i, f = (log_i - new_m).exp(), (log_f + (m - new_m)).exp()
        new_c, new_n = f * c + i * z.tanh(), f * n + i
        new_h = o.sigmoid() * new_c / new_n
        news = (new_h, new_c, new_n, new_m)
        return tuple(torch.where(kept, new, old) for new, old in zip(news, carry, strict=True)), new_h
