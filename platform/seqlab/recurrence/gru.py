"""Gated recurrent unit (Cho et al. 2014).

B batch, T length, D d_model, L layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.nn.padding import is_real
from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights
from seqlab.recurrence.gru_training import GRUOverTime


class GRU(FusedRecurrence):
    """PyTorch's GRU layer, in which the reset gate acts after the recurrent product.

    r = sigmoid(W_r x + b_r + U_r h + c_r); z likewise; n = tanh(W_n x + b_n + r * (U_n h + c_n));
    h' = (1 - z) * n + z * h. The state is `h (B, L, D)`; a bidirectional GRU has none.

    Args:
        num_layers: number of layers L stacked inside the mixer.
        dropout: dropout probability between these layers, in training.
        bidirectional: whether to run in both directions with width d_model / 2 each; then it is not causal.
        looped: whether to use a Python loop instead of the fused kernel, as a baseline for benchmarks.
    """

    state_names = ("h",)

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        looped: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            layer,
            nn.GRU,
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            looped=looped,
        )

    def cell_step(self, x_t: Tensor, carry: Carry, weights: Weights) -> Carry:
        return (torch.gru_cell(x_t, carry[0], *weights),)

    def _fused(self, x: Tensor, entries: Carry, length: Tensor | None) -> tuple[Tensor, Carry]:
        slow = x.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if not (slow and self.causal):
            return super()._fused(x, entries, length)
        real = None if length is None else is_real(x, length).transpose(0, 1)  # (T, B, 1)
        last, x = [], x.transpose(0, 1)
        for k, ((w_ih, w_hh, b_ih, b_hh),) in enumerate(self.weights()):
            from_x = F.linear(self._dropped(x, k), w_ih, b_ih)  # (T, B, 3 D)
            if real is not None:
                r, z, n = from_x.chunk(3, dim=-1)  # (T, B, D) each
                from_x = torch.cat((r, z.masked_fill(~real, torch.inf), n), dim=-1)
            x = GRUOverTime.apply(from_x, entries[0][k], w_hh, b_hh)  # type: ignore[no-untyped-call]  # (T, B, D)
            last.append(x[-1])
        y = x if real is None else x.masked_fill(~real, 0)  # as in PyTorch's kernel
        return y.transpose(0, 1), (torch.stack(last),)  # (B, T, D), (L, B, D)
