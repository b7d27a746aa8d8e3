"""RNN, GRU and LSTM layers as single ONNX nodes, dynamic in batch and length.

PyTorch's own export of these layers freezes the length it was traced with. Inside `emit_onnx()` a recurrence calls
`forward_onnx` in place of its fused kernel.

B batch, T length, D d_model, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.nn.padding import leading_pads, rotate_rows

# PyTorch's mode: the ONNX operator, the place of its gates among PyTorch's, the attributes of its own.
_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h among r, z, n
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c among i, f, g, o
}


def forward_onnx(
    mode: str,
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    x: Tensor,
    state: tuple[Tensor, ...],
    pad_mask: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One node over x (B, T, D); pads are the identity.

    Args:
        mode: "RNN_TANH", "GRU" or "LSTM", the `mode` of PyTorch's layer.
        weights: `weight_ih` (G D, D), `weight_hh` (G D, D), `bias_ih` (G D,), `bias_hh` (G D,) of that layer.
        state: the entries of the state, (B, D) each.
        pad_mask: (B, T) bool, True = a real token.

    Returns:
        y (B, T, D), and the entries of the new state.
    """
    if pad_mask is None:
        pad_mask = x.new_ones(x.shape[:2], dtype=torch.bool)
    # Rows begin with their real tokens, so that the node ends each at its length.
    lead = leading_pads(pad_mask)
    aligned = rotate_rows(x, lead)
    length = pad_mask.sum(dim=1)

    y, *last = _node(mode, weights, aligned, length.clamp(min=1), state)
    empty = (length == 0).unsqueeze(-1)
    new_state = tuple(torch.where(empty, old, new) for old, new in zip(state, last, strict=True))
    return rotate_rows(y, -lead), new_state


def _node(
    mode: str,
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    x: Tensor,
    length: Tensor,
    state: tuple[Tensor, ...],
) -> list[Tensor]:
    """y (B, T, D) and the last state's entries (B, D). Rows begin at 0 and have `length` (B,) >= 1."""
    operator, gates, attributes = _OPERATORS[mode]
    batch_size, size, width = x.shape

    def one_direction(weight: Tensor) -> Tensor:
        """(G D, ...) to (1, G D, ...), with the gates in the operator's order."""
        return torch.cat([weight[gate * width : (gate + 1) * width] for gate in gates]).unsqueeze(0)

    weight_ih, weight_hh, bias_ih, bias_hh = map(one_direction, weights)
    y, *last = torch.onnx.ops.symbolic_multi_out(
        operator,
        [
            x.transpose(0, 1),
            weight_ih,
            weight_hh,
            torch.cat((bias_ih, bias_hh), dim=1),
            length.to(torch.int32),
            *(entry.unsqueeze(0) for entry in state),
        ],
        {"hidden_size": width, **attributes},
        dtypes=[x.dtype] * (1 + len(state)),
        shapes=[[size, 1, batch_size, width]] + [[1, batch_size, width]] * len(state),
        version=22,
    )
    return [y.squeeze(1).transpose(0, 1), *(entry.squeeze(0) for entry in last)]
