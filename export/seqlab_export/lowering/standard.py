"""Operations as ONNX's standard nodes: `Attention`, `RNN`, `GRU` and `LSTM`, and `Scan` for every other recurrence.

Each is dynamic in batch and length.

B batch, T length, S key length, H heads, K head_dim, L layers, D their width, R directions (1 or 2), G gates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from seqlab.attention.path import reflect, reflect_step_by_step
from seqlab.attention.scores import dot_product_attention
from seqlab.attention.softmax import project
from seqlab.nn import matrix_recurrence
from seqlab.nn.heads import repeat_heads
from seqlab.nn.mixture_of_experts import combined, expert, mixed
from seqlab.nn.numerics import raised, running_sum
from seqlab.nn.operation import Lowerings
from seqlab.nn.scan import Carry, Step, scan_over_time
from seqlab.recurrence.fused import FusedRecurrence, Weights
from seqlab.recurrence.linear_scan import complex_scan, complex_step_by_step, linear_scan, linear_step_by_step
from seqlab.recurrence.mlstm import stabilise, stabilise_step_by_step
from seqlab.recurrence.s4d import S4D
from seqlab.recurrence.selective_scan import selective_scan, selective_step_by_step

# PyTorch's mode: the ONNX operator, the indices of its gates in PyTorch's order, its additional attributes.
_OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, int]]] = {
    "RNN_TANH": ("RNN", (0,), {}),
    "RNN_RELU": ("RNN", (0,), {}),
    "GRU": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h among r, z, n
    "LSTM": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c among i, f, g, o
}


def scan_node(step: Step, carry: Carry, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Carry]:
    """One `Scan` for a loop over time."""

    # Scan needs outputs that are not inputs and have the same memory layout, and time as the first axis.
    def cloned(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        carry, output = step(carry, now)
        return tuple(entry.clone(memory_format=torch.contiguous_format) for entry in carry), output.clone()

    last, outputs = scan(cloned, carry, tuple(x.transpose(0, 1) for x in inputs))
    return outputs.transpose(0, 1), last


def attention_node(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool, scale: float, dropout: float
) -> Tensor:
    """One `Attention` with pre-scaled queries: onnxruntime's fast product of a single query with its keys does not
    support a scale."""
    # torch.export cannot infer, for every S, the strides of the heads that PyTorch's kernel repeats.
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    return F.scaled_dot_product_attention(
        q * scale, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=1.0
    )


def layer_nodes(
    layers: FusedRecurrence, x: Tensor, entries: Carry, length: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One node per layer: PyTorch's own export of these layers freezes the traced length."""
    if length is None:
        length = x.new_ones(x.shape[:2], dtype=torch.int64).sum(dim=1)
    found: list[Carry] = []
    for k, weights in enumerate(layers.weights()):
        start = tuple(entry[k : k + 1] for entry in entries)
        x, last = _layer_node(layers.cell.mode, weights, x, length.clamp(min=1), start)
        found.append(last)
    return x, tuple(torch.cat(entry) for entry in zip(*found, strict=True))


def _layer_node(
    mode: str, weights: tuple[Weights, ...], x: Tensor, length: Tensor, state: Carry
) -> tuple[Tensor, Carry]:
    """A layer over x (B, T, E) from `state`, (R, B, D) each or empty: y (B, T, R D) and the final state."""
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
    # (T, R, B, D) to (B, T, R D)
    return y.permute(2, 0, 1, 3).flatten(2), tuple(last)


def expert_nodes(x: Tensor, chosen: Tensor, gates: Tensor, load: Tensor, *layers: Tensor) -> Tensor:
    """A mixture of experts without loops. For a token a row, x (B, D), only the chosen experts' weights are gathered;
    for x (B, T, D) all experts are computed, times 0 where they are not chosen."""
    if x.dim() == 2:
        outputs = expert(x[:, None, :, None], *(layer[chosen] for layer in layers)).squeeze(-1)  # (B, k, D)
        return combined(outputs, gates).to(x.dtype)
    of_all = gates.new_zeros(*x.shape[:-1], len(load)).scatter(-1, chosen, gates)  # (B, T, E)
    outputs = expert(x.flatten(0, 1).mT, *layers)  # (E, D, B T)
    return combined(outputs.permute(2, 0, 1), of_all.flatten(0, 1)).view_as(x).to(x.dtype)


def one_product(x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """Outputs of several linear layers on x (..., D), computed as one matrix product."""
    return torch.split(packed(x, layers), [layer.out_features for layer in layers], -1)


def packed(x: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Concatenated outputs of linear layers on x (..., D)."""
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)


STANDARD: Lowerings = {
    scan_over_time: scan_node,
    dot_product_attention: attention_node,
    FusedRecurrence.over_time: layer_nodes,
    matrix_recurrence.over_time: matrix_recurrence.step_by_step,
    linear_scan: linear_step_by_step,
    complex_scan: complex_step_by_step,
    selective_scan: selective_step_by_step,
    stabilise: stabilise_step_by_step,
    reflect: reflect_step_by_step,
    S4D.in_chunks: S4D.step_by_step,
    mixed: expert_nodes,
    # onnxruntime's float32 exponentials and sines are less precise than PyTorch's.
    raised: Tensor.double,
    running_sum: lambda x, dim: x.double().cumsum(dim).to(x.dtype),
}

QUANTIZED: Lowerings = {project: one_product}
