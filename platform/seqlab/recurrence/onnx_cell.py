"""RNN, GRU and LSTM layers as single ONNX nodes, dynamic in batch and length.

PyTorch's own export of these layers freezes the length it was traced with. Inside `emit_onnx_cells()` a
recurrence calls `forward_onnx` in place of its fused kernel. The result can be exported, and only exported.

B batch, T length, D d_model, G gates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_emitting = ContextVar("_emitting", default=False)

# PyTorch's mode: the ONNX operator, the place of its gates among PyTorch's, the attributes of its own.
_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h among r, z, n
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c among i, f, g, o
}


@contextmanager
def emit_onnx_cells() -> Iterator[None]:
    """While open, `torch.export` captures recurrences as ONNX nodes.

    `torch.onnx.is_in_onnx_export()` says as much inside `torch.onnx.export`, but not where a program is
    captured first and handed to it afterwards.
    """
    token = _emitting.set(True)
    try:
        yield
    finally:
        _emitting.reset(token)


def emitting() -> bool:
    """Whether a recurrence must emit its ONNX node."""
    return _emitting.get() or torch.onnx.is_in_onnx_export()


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
    # Rows rotated left past their leading pads, so that the node ends each at its length.
    size = x.shape[1]
    index = torch.arange(size, device=x.device)
    lead = (pad_mask.cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
    source, back = index + lead, index - lead
    source = torch.where(source < size, source, source - size)
    back = torch.where(back >= 0, back, back + size)
    aligned = x.gather(1, source.unsqueeze(-1).expand_as(x))
    length = pad_mask.sum(dim=1)

    y, *last = _node(mode, weights, aligned, length.clamp(min=1), state)
    empty = (length == 0).unsqueeze(-1)
    new_state = tuple(torch.where(empty, old, new) for old, new in zip(state, last, strict=True))
    return y.gather(1, back.unsqueeze(-1).expand_as(y)), new_state


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
