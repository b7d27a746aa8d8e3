"""Common base of linear attention mixers: query, key and value projections, and a matrix-valued state.

B batch, T length, D d_model, H heads, K key width, V value width, W convolution width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.matrix_recurrence import recurrence_flops
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.short_conv import ShortConv


class LinearFamily(RecurrentMixer):
    """Base class of linear attention; a subclass implements `mix`: projections, matrix updates and outputs.

    The state is `s (B, H, K, V)`, preceded by `conv (B, W - 1, H (2 K + V))`, the last projected inputs, if there is a
    short convolution.

    Args:
        head_dim, value_dim: widths K and V of the projections.
        writes: number of keys and values per token.
        columns: number of columns of the matrix, if it holds more than the values; None = value_dim.
        conv_width: kernel width W of a short causal convolution over queries, keys and values, followed by swish;
            None = no convolution.
        bias: whether the projections have biases.
    """

    def __init__(
        self,
        d_model: int,
        layer: int,
        *,
        num_heads: int,
        head_dim: int,
        value_dim: int,
        writes: int = 1,
        columns: int | None = None,
        conv_width: int | None,
        bias: bool = False,
    ) -> None:
        super().__init__(d_model, layer)
        self.num_heads, self.head_dim, self.value_dim = num_heads, head_dim, value_dim
        self.columns = value_dim if columns is None else columns
        self.widths = [num_heads * width for width in (head_dim, writes * head_dim, writes * value_dim)]
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_model, width, bias=bias) for width in self.widths)
        self.looks_back = conv_width is not None
        if conv_width is not None:
            self.conv = ShortConv(sum(self.widths), conv_width, bias=False)

    def project(self, x: Tensor, state: State, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor, State]:
        """q and k (B, T, H, K), v (B, T, H, V), those of several writes side by side, and the convolution's part of the
        new state."""
        parts, conv_state = [self.q_proj(x), self.k_proj(x), self.v_proj(x)], {}  # parts (B, T, H K or H V)
        if self.looks_back:
            length = None if real is None else real.sum(dim=1)
            # (B, T, H (2 K + V)), (B, W - 1, H (2 K + V))
            convolved, conv_state["conv"] = self.conv(torch.cat(parts, dim=-1), state["conv"], length)
            parts = list(torch.split(F.silu(convolved), self.widths, dim=-1))  # (B, T, H K or H V) each
        q, k, v = (torch.unflatten(part, -1, (self.num_heads, -1)) for part in parts)  # (B, T, H, ...) each
        return q, k, v, conv_state

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns)

    def state_spec(self) -> StateSpec:
        s = StateEntry("s", (self.num_heads, self.head_dim, self.columns))
        return (self.conv.entry, s) if self.looks_back else (s,)


def unit(x: Tensor) -> Tensor:
    """L2-normalises x (..., K) in at least float32, with 1e-6 inside the root as in the delta rule's original code."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()
