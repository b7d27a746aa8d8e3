"""int8 products for the int4 weights of graphs that read whole sequences.

onnxruntime's 4-bit product, `MatMulNBits`, is optimised for a decode step, which reads every weight for one row: over
a whole sequence it takes three times as long as the int8 product. For sequences, the weights (O outputs, D inputs, G
blocks) are therefore rescaled to one scale per output, on the 129 levels of int8, and each input row to [-1, 1], so
that rows hardly depend on each other. The graph derives these weights from the stored ones, which the step shares:
onnxruntime does this once, on loading the graph, and needs at most `MOST` times 12 bytes for it.
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
"""Maximum number of weights of a graph for this rewrite. Each takes 10 to 12 additional bytes during loading."""


def multiply_as_int8(model: ir.Model) -> None:
    """Rewrites every `MatMulNBits` of a graph made by `quantize`, if they have at most `MOST` weights in total. Loop
    bodies, which read one row at a time, are left unchanged."""
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
    # The largest weight of a block is 8 times its scale; the largest weight of an output is mapped to level 64.
    heaviest = np.abs(scales.const_value.numpy()).reshape(outputs, blocks).max(axis=1) / 8
    scale = op.initializer(ir.tensor(heaviest.clip(TINY)), name=f"{name}_scale")
    rows = ir.PackedTensor(halves.reshape(outputs, -1), ir.DataType.UINT4, shape=(outputs, blocks * BLOCK))
    levels = op.Cast(op.initializer(rows, name=f"{name}_rows_Q4"), to=ir.DataType.FLOAT)
    levels = op.Sub(levels, op.Constant(value_float=8.0))
    # Few nodes are used, since onnxruntime keeps the output of each until all weights are computed.
    level = op.Div(op.Unsqueeze(scale, op.Constant(value_ints=[1])), scales)
    weight = op.QuantizeLinear(levels, level, axis=1, block_size=BLOCK, output_dtype=ir.DataType.INT8)
    if width < blocks * BLOCK:
        start, end, axis = (op.Constant(value_ints=[number]) for number in (0, width, 1))
        weight = op.Slice(weight, start, end, axis)
    # Each row is scaled to a maximum of 1, since dynamic quantisation uses one range for all rows.
    last = op.Constant(value_ints=[-1])
    largest = op.Max(op.ReduceMax(op.Abs(x), last, keepdims=1), op.Constant(value_float=TINY))
    x, x_scale, x_zero = op.DynamicQuantizeLinear(op.Div(x, largest), _outputs=3)
    total = op.MatMulInteger(x, op.Transpose(weight, perm=[1, 0]), x_zero)
    y = op.Mul(op.Cast(total, to=ir.DataType.FLOAT), op.Mul(x_scale, scale))
    y = op.Mul(y, largest)
    return y
