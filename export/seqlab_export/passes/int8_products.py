"""Multiplies the int4 weights of a graph that reads whole sequences as int8.

onnxruntime's product with 4 bits, `MatMulNBits`, is made for a step, which reads every weight for one row: over a whole
sequence it takes three times as long as its product of int8. So there the weights (O outputs, D inputs, G blocks) are
brought to one scale for each output, on the 129 levels that they have in int8, and each row of inputs to the range from
-1 to 1, so that rows hardly depend on each other. The graph computes the weights of those that are stored, which the
step shares: onnxruntime does it once, when it loads the graph, and takes `MOST` times 12 bytes for it at most.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from onnxscript import ir
from onnxscript.rewriter import RewriteRule, rewrite

from seqlab_export.passes.quantize import BLOCK

TINY = float(np.finfo(np.float32).tiny)
"""Divisor for rows and weights of zeros."""
MOST = 1 << 26
"""Most weights of a graph that are multiplied this way. While it loads each takes 10 to 12 bytes more."""


def multiply_as_int8(model: ir.Model) -> None:
    """Rewrites every `MatMulNBits` of a graph that `quantize` made, if they have `MOST` weights or fewer; not those of
    a loop's body, which reads one row at a time."""
    products = [node.attributes for node in model.graph if node.op_type == "MatMulNBits"]
    if sum(found["K"].as_int() * found["N"].as_int() for found in products) > MOST:
        return
    rewrite(model, [RewriteRule(_product_of_int4, _product_of_int8, partial(_is_in, model.graph))])


def _product_of_int4(op: Any, x: Any, packed: Any, scales: Any) -> Any:
    return op.MatMulNBits(x, packed, scales, _domain="com.microsoft", _allow_other_attributes=True, _outputs=["y"])


def _is_in(graph: ir.Graph, context: Any, *, y: ir.Value, **others: ir.Value) -> bool:
    node = y.producer()
    return node is not None and node.graph is graph


def _product_of_int8(op: Any, x: ir.Value, packed: ir.Value, scales: ir.Value, y: ir.Value) -> ir.Value:
    node = y.producer()
    assert node is not None and packed.const_value is not None and scales.const_value is not None
    assert packed.name is not None
    name, width = packed.name.removesuffix("_Q4"), node.attributes["K"].as_int()
    halves = packed.const_value.numpy()  # (O, G, BLOCK / 2)
    outputs, blocks, _ = halves.shape
    # The largest weight of a block is 8 times its scale; that of an output is to be at level 64.
    heaviest = np.abs(scales.const_value.numpy()).reshape(outputs, blocks).max(axis=1) / 8
    scale = op.initializer(ir.tensor(heaviest.clip(TINY)), name=f"{name}_scale")
    rows = ir.PackedTensor(halves.reshape(outputs, -1), ir.DataType.UINT4, shape=(outputs, blocks * BLOCK))
    levels = op.Cast(op.initializer(rows, name=f"{name}_rows_Q4"), to=ir.DataType.FLOAT)
    levels = op.Sub(levels, op.Constant(value_float=8.0))
    # In few steps: onnxruntime holds what each of them gives until all weights are made.
    level = op.Div(op.Unsqueeze(scale, op.Constant(value_ints=[1])), scales)
    weight = op.QuantizeLinear(levels, level, axis=1, block_size=BLOCK, output_dtype=ir.DataType.INT8)
    if width < blocks * BLOCK:
        start, end, axis = (op.Constant(value_ints=[number]) for number in (0, width, 1))
        weight = op.Slice(weight, start, end, axis)
    # Each row's largest is to be 1: the range is taken over all rows at once.
    last = op.Constant(value_ints=[-1])
    largest = op.Max(op.ReduceMax(op.Abs(x), last, keepdims=1), op.Constant(value_float=TINY))
    x, x_scale, x_zero = op.DynamicQuantizeLinear(op.Div(x, largest), _outputs=3)
    total = op.MatMulInteger(x, op.Transpose(weight, perm=[1, 0]), x_zero)
    y = op.Mul(op.Cast(total, to=ir.DataType.FLOAT), op.Mul(x_scale, scale))
    y = op.Mul(y, largest)
    return y
