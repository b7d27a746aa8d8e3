"""RNN, GRU and LSTM layers as single ONNX nodes, dynamic in batch and length.

PyTorch's own export of these layers freezes the length it was traced with. Inside `emit_onnx()` a recurrence calls
`forward_onnx` in place of its fused kernel.

B batch, T length, E input width, D width of a direction, R directions (1 or 2), G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""`weight_ih` (G D, E), `weight_hh` (G D, D), `bias_ih` (G D,), `bias_hh` (G D,) of PyTorch's layer."""

# PyTorch's mode: the ONNX operator, the place of its gates among PyTorch's, the attributes of its own.
_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "RNN_RELU": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h among r, z, n
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c among i, f, g, o
}


def forward_onnx(
    mode: str, weights: tuple[Weights, ...], x: Tensor, length: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer over x (B, T, E), whose rows begin with their real tokens.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM", the `mode` of PyTorch's layer.
        weights: of each direction.
        length: (B,) how many tokens of each row are real, at least 1.
        state: the entries, (R, B, D) each; none where they begin at zeros.

    Returns:
        y (B, T, R D), and the last entries.
    """
    operator, gates, attributes = _OPERATORS[mode]
    directions, width = len(weights), weights[0][1].shape[1]
    batch_size, size, _ = x.shape

    def in_order(weight: Tensor) -> Tensor:
        """(G D, ...) with the gates in the operator's order."""
        return torch.cat([weight[gate * width : (gate + 1) * width] for gate in gates])

    weight_ih, weight_hh, bias_ih, bias_hh = (
        torch.stack([in_order(part) for part in parts]) for parts in zip(*weights, strict=True)
    )
    activations = {"activations": ["Relu"] * directions} if mode == "RNN_RELU" else {}
    num_entries = 2 if operator == "LSTM" else 1
    y, *last = torch.onnx.ops.symbolic_multi_out(
        operator,
        [
            x.transpose(0, 1),
            weight_ih,
            weight_hh,
            torch.cat((bias_ih, bias_hh), dim=1),
            length.to(torch.int32),
            *state,
        ],
        {
            "hidden_size": width,
            "direction": "bidirectional" if directions == 2 else "forward",
            **attributes,
            **activations,
        },
        dtypes=[x.dtype] * (1 + num_entries),
        shapes=[[size, directions, batch_size, width]] + [[directions, batch_size, width]] * num_entries,
        version=22,
    )
    return y.permute(2, 0, 1, 3).flatten(2), tuple(last)
