"""RWKV-7 "Goose": a delta rule with a decay per channel (Peng et al. 2025).

B batch, T length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import HeadNorm
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.updates import Updates

LOWEST_LOG_DECAY = -math.exp(-0.5)


class RWKV7(RecurrentMixer):
    """The time mixing of Peng et al. 2025, "RWKV-7 Goose", section 4: every input is a mix of the token and the one
    before it, x^c_t = x_t + mu_c (x_{t-1} - x_t) for c = r, w, k, v, a, g; then

    S_t = S_{t-1} (diag(w_t) - kappa_t^T (a_t * kappa_t)) + v_t^T k_t,   o_t = S_t r_t,

    with w = exp(-exp(-1/2) sigmoid(lora_w)), a = sigmoid(lora_a), kappa the unit vector along k * xi, and k times
    1 + (a - 1) alpha; y = W_o (lora_g * (norm(o) + (r . (rho * k)) v)), the norm over each head. The mix of the values
    with those of the first layer is left out: it would need the layers to see each other.

    Training runs in chunks, as for the delta rule. The state is `shift (B, D)`, the last input, and
    `s (B, H, K, K)`, S transposed.

    Args:
        head_dim: head width K; must divide d_model.
        decay_rank: inner width of lora_w and lora_a; None = the authors' choice for d_model.
        gate_rank: inner width of lora_g; None = the authors' choice for d_model.

    Raises:
        ValueError: head_dim does not divide d_model.
    """

    looks_back = True

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        head_dim: int = 64,
        decay_rank: int | None = None,
        gate_rank: int | None = None,
    ) -> None:
        super().__init__(d_model, layer)
        if head_dim < 1 or d_model % head_dim:
            raise ValueError(f"head_dim must divide d_model, got head_dim {head_dim} and d_model {d_model}")
        self.head_dim = head_dim
        self.num_heads = d_model // head_dim
        decay_rank = _rank(2.5, d_model) if decay_rank is None else decay_rank
        gate_rank = _rank(5.0, d_model) if gate_rank is None else gate_rank
        self.r_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.decay_down = nn.Linear(d_model, decay_rank, bias=False)
        self.decay_up = nn.Linear(decay_rank, d_model, bias=False)
        self.rate_down = nn.Linear(d_model, decay_rank, bias=False)
        self.rate_up = nn.Linear(decay_rank, d_model, bias=False)
        self.gate_down = nn.Linear(d_model, gate_rank, bias=False)
        self.gate_up = nn.Linear(gate_rank, d_model, bias=False)
        # As in the authors' code for the first layer; later layers there start with less of the previous token.
        place = torch.arange(d_model) / d_model
        spread = torch.linspace(-0.5, 0.5, d_model)
        zigzag = torch.linspace(-1.0, 1.0, head_dim).repeat(self.num_heads) if head_dim > 1 else torch.zeros(d_model)
        zigzag = zigzag * zigzag.abs()
        self.shift_mix = nn.Parameter(1 - torch.stack([place**power for power in (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)]))
        self.decay_bias = nn.Parameter(6 * spread - 2.5 + 2.5 * zigzag)
        self.rate_bias = nn.Parameter(-0.19 + 0.3 * zigzag + 0.4 * spread)
        self.removal_scale = nn.Parameter(0.71 - 0.1 * spread)
        self.rate_scale = nn.Parameter(torch.full((d_model,), 1.02))
        self.bonus = nn.Parameter(torch.full((self.num_heads, head_dim), -0.04))
        self.head_norm = HeadNorm(self.num_heads, head_dim, eps=1e-5 * head_dim)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.head_dim, writers=2)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        history = torch.cat((state["shift"].unsqueeze(1), x), dim=1)  # (B, 1 + T, D)
        difference = history[:, :-1] - x
        x_r, x_w, x_k, x_v, x_a, x_g = (x + mu * difference for mu in self.shift_mix.unbind())  # (B, T, D) each
        r, k, v = self.r_proj(x_r), self.k_proj(x_k), self.v_proj(x_v)
        log_decay = LOWEST_LOG_DECAY * (self.decay_bias + self.decay_up(self.decay_down(x_w).tanh())).sigmoid()
        rate = (self.rate_bias + self.rate_up(self.rate_down(x_a))).sigmoid()
        gate = self.gate_up(self.gate_down(x_g).sigmoid())
        removal = k * self.removal_scale
        k = k * (1 + (rate - 1) * self.rate_scale)

        r, k, v, log_decay, rate, removal = (  # (B, T, H, K) each
            torch.unflatten(y, -1, (self.num_heads, -1)) for y in (r, k, v, log_decay, rate, removal)
        )
        removal = F.normalize(removal, dim=-1)
        updates = Updates(r, k, v, log_decay, read=removal, erase=-rate * removal)
        # o (B, T, H, K), s (B, H, K, K)
        o, s = matrix_recurrence(updates, state["s"], real, single=single, min_log_decay=LOWEST_LOG_DECAY)
        heads = self.head_norm(o.to(x.dtype)) + (r * self.bonus * k).sum(dim=-1, keepdim=True) * v
        if real is None:
            shift = x[:, -1]  # (B, D)
        else:
            # (B, 1, D) indices into the history, whose first entry comes from the state.
            last = real.sum(dim=1).view(-1, 1, 1).expand(-1, 1, self.d_model)
            shift = history.gather(1, last).squeeze(1)  # (B, D)
        return self.out_proj(gate * heads.flatten(2)), {"shift": shift.to(state["shift"].dtype), "s": s}

    def state_spec(self) -> StateSpec:
        matrix = (self.num_heads, self.head_dim, self.head_dim)
        return StateEntry("shift", (self.d_model,), kind="window"), StateEntry("s", matrix)


def _rank(scale: float, d_model: int) -> int:
    """A multiple of 32 near scale * sqrt(d_model)."""
    return max(32, round(scale * math.sqrt(d_model) / 32) * 32)
