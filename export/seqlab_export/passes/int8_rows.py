"""Linear layers and LSTMs in int8: weights of 7 bits with one scale per output, and a range for each row of inputs.

The eighth bit is unused: processors without VNNI instructions add pairs of products in 16 bits, which would overflow.
onnxruntime's own dynamic quantisation has one range for all rows, so that each depends on the others. Here each row is
divided by its largest magnitude, and sums of products are exact integers: a row's outputs are the same, bit for bit,
among any number of rows. onnxruntime restores the weights of an LSTM to float32 on loading the graph.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxscript import ir
from onnxscript.rewriter import RewriteRule, rewrite

_LEVELS, _ZERO = 127, 128
"""Levels of an input on each side of 0, and the level of 0: products of unsigned integers are the fastest."""
_WEIGHT_LEVELS = 64
"""Levels of a weight on each side of 0."""


def quantize_to_int8(model: ir.Model) -> None:
    """Quantises the linear layers and LSTMs of a graph, except those in a loop."""
    for node in [node for node in model.graph if node.op_type == "LSTM"]:
        for place in (1, 2):
            node.replace_input_with(place, _restored(model.graph, node.inputs[place]))
    rewrite(model, [RewriteRule(_linear, _linear_in_int8, partial(_is_linear, model.graph))])


def multiply_rows(op: Any, x: ir.Value, levels: ir.Value, scale: ir.Value) -> ir.Value:
    """y (..., O) of x (..., D), the levels (D, O) of int8 weights, and their scale (O) for each output.

    In a row of zeros, 0 / 0 is quantised to any level, which is then multiplied by 0.
    """
    last, step = op.Constant(value_ints=[-1]), op.Constant(value_float=1 / _LEVELS)
    largest = op.ReduceMax(op.Abs(x), last, keepdims=1)
    zero = op.Constant(value=ir.tensor(np.array(_ZERO, dtype=np.uint8)))
    total = op.MatMulInteger(op.QuantizeLinear(op.Div(x, largest), step, zero), levels, zero)
    y: ir.Value = op.Mul(op.Mul(op.Cast(total, to=ir.DataType.FLOAT), op.Mul(scale, step)), largest)
    return y


def _linear(op: Any, x: Any, weight: Any) -> Any:
    return op.MatMul(x, weight, _outputs=["y"])


def _is_linear(graph: ir.Graph, context: Any, *, weight: ir.Value, y: ir.Value, **others: ir.Value) -> bool:
    """False for a product with a vector or with a matrix per head, and in a loop."""
    node = y.producer()
    return weight.const_value is not None and len(weight.const_value.shape) == 2 and node in graph


def _linear_in_int8(op: Any, x: ir.Value, weight: ir.Value, y: ir.Value) -> ir.Value:
    levels, scale = _rounded(weight, axis=0)
    held = [op.initializer(ir.tensor(array), name=name) for name, array in _named(weight, levels, scale[0])]
    return multiply_rows(op, x, *held)


def _restored(graph: ir.Graph, weight: ir.Value | None) -> ir.Value:
    """The float32 of the levels of an LSTM's weights (R, G D, E)."""
    assert weight is not None
    held = []
    for name, array in _named(weight, *_rounded(weight, axis=-1)):
        tensor = ir.tensor(array, name=name)
        shape, kind = ir.Shape(array.shape), ir.TensorType(tensor.dtype)
        held.append(ir.Value(name=name, const_value=tensor, shape=shape, type=kind))
        graph.register_initializer(held[-1])
    widened = ir.node("Cast", held[:1], {"to": ir.DataType.FLOAT})
    product = ir.node("Mul", [widened.outputs[0], held[1]])
    graph.insert_before(graph[0], [widened, product])
    return product.outputs[0]


def _named(weight: ir.Value, levels: NDArray[np.int8], scale: NDArray[np.float32]) -> list[tuple[str, NDArray[Any]]]:
    return [(f"{weight.name}_quantized", levels), (f"{weight.name}_scale", scale)]


def _rounded(weight: ir.Value, axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The nearest levels of a weight whose inputs are on `axis`, and the scale of each output."""
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    scale = np.abs(array).max(axis=axis, keepdims=True) / _WEIGHT_LEVELS
    return np.rint(array / np.where(scale > 0, scale, 1)).astype(np.int8), scale
