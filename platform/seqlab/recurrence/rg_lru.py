"""The real-gated linear recurrent unit in its recurrent block (De et al. 2024, "Griffin: Mixing Gated Linear
Recurrences with Local Attention for Efficient Language Models").

B batch, T length, D d_model, N d_state, H heads, W convolution width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import POSITION, State, StateEntry, StateSpec
from seqlab.nn.numerics import expm1
from seqlab.nn.padding import identity_at_pads
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.short_conv import ShortConv
from seqlab.recurrence.linear_scan import linear_scan

_C = 8.0


class RGLRU(AlignedMixer):
    """Griffin's recurrent block (section 2.3): out_proj(gelu(gate_proj x) * RG-LRU(ShortConv(in_proj x))).

    RG-LRU (section 2.4, equations 1 to 4): r, i = sigmoid(W_a u + b_a), sigmoid(W_x u + b_x), block-diagonal in
    num_heads blocks; log a = -8 softplus(decay) * r; h' = a * h + sqrt(1 - a^2) * (i * u). As in the authors' code and
    RecurrentGemma, the very first input is not scaled by sqrt(1 - a^2).

    The state is `position (B,)`, `conv (B, W - 1, N)` and `h (B, N)`.

    Args:
        d_state: width N of the recurrence; None = d_model.
        num_heads: number of blocks in the gates' weights; must divide d_state (ValueError).
        conv_width: kernel width W of the short convolution.
    """

    def __init__(
        self, d_model: int, layer: int = 0, *, d_state: int | None = None, num_heads: int = 1, conv_width: int = 4
    ) -> None:
        super().__init__(d_model, layer)
        self.d_state = d_model if d_state is None else d_state
        if num_heads < 1 or self.d_state % num_heads:
            raise ValueError(f"num_heads must divide d_state, got num_heads {num_heads} and d_state {self.d_state}")
        block = self.d_state // num_heads
        self.in_proj = nn.Linear(d_model, self.d_state)
        self.gate_proj = nn.Linear(d_model, self.d_state)
        self.conv = ShortConv(self.d_state, conv_width)
        self.input_gate_weight = nn.Parameter(torch.randn(num_heads, block, block) * block**-0.5)
        self.input_gate_bias = nn.Parameter(torch.zeros(num_heads, block))
        self.recurrent_gate_weight = nn.Parameter(torch.randn(num_heads, block, block) * block**-0.5)
        self.recurrent_gate_bias = nn.Parameter(torch.zeros(num_heads, block))
        # a at r = 1 begins uniform in 0.9..0.999 (section 2.4): softplus(decay) = -log(a)/8.
        self.decay = nn.Parameter(torch.log(torch.expm1(-torch.log(0.9 + 0.099 * torch.rand(self.d_state)) / _C)))
        self.out_proj = nn.Linear(self.d_state, d_model)

    def flops(self, new: int, seen: int) -> int:
        return 2 * new * (self.input_gate_weight.numel() + self.recurrent_gate_weight.numel())

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        u, conv = self.conv(self.in_proj(x), state["conv"], length)  # (B, T, N), (B, W - 1, N)
        start, position = state["h"], state["position"]
        places = torch.arange(x.shape[1], device=x.device)
        first = (position.unsqueeze(1) + places == 0).unsqueeze(-1)  # (B, T, 1)
        a, b = identity_at_pads(*self._coefficients(u, first, start.dtype), length)  # (B, T, N) each
        h = linear_scan(a, b, start).to(start.dtype)  # (B, T, N)
        count = x.shape[1] if length is None else length
        return self._output(x, h), {"position": position + count, "conv": conv, "h": h[:, -1]}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        u, conv = self.conv.step(self.in_proj(x_t), state["conv"])  # (B, N), (B, W - 1, N)
        a, b = self._coefficients(u, (state["position"] == 0).unsqueeze(-1), state["h"].dtype)  # (B, N) each
        h = a * state["h"] + b
        return self._output(x_t, h), {"position": state["position"] + 1, "conv": conv, "h": h}

    def state_spec(self) -> StateSpec:
        return POSITION, self.conv.entry, StateEntry("h", (self.d_state,))

    def _coefficients(self, u: Tensor, first: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Factors and inputs (..., N) of the recurrence from u (..., N); `first` (..., 1) marks the first input."""
        i = _block_linear(u, self.input_gate_weight, self.input_gate_bias).to(dtype).sigmoid()
        r = _block_linear(u, self.recurrent_gate_weight, self.recurrent_gate_bias).to(dtype).sigmoid()
        log_a = -_C * F.softplus(self.decay) * r
        # 1 - a^2 without its rounding near a = 1; clamped, or its root has no gradient where a is 1.
        scale = (-expm1(2 * log_a)).clamp(min=torch.finfo(dtype).tiny).sqrt()
        return log_a.exp(), torch.where(first, 1.0, scale) * i * u

    def _output(self, x: Tensor, h: Tensor) -> Tensor:
        gate = F.gelu(self.gate_proj(x), approximate="tanh")
        y: Tensor = self.out_proj(gate * h.to(gate.dtype))  # (..., D)
        return y


def _block_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (..., N) times a block-diagonal matrix, weight (H, N/H in, N/H out), plus bias (H, N/H)."""
    blocks = x.view(*x.shape[:-1], *bias.shape)  # (..., H, N/H)
    y = torch.einsum("...hi,hij->...hj", blocks, weight) + bias  # (..., H, N/H)
    return y.flatten(-2)  # (..., N)
