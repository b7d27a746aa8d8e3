"""int8 products for the int4 weights of graphs that read whole sequences.

onnxruntime's 4-bit product, `MatMulNBits`, is optimised for a single row, as in a step: over many it takes three times
as long as the int8 product. The weights (O outputs, D inputs, G blocks) are therefore rescaled to one scale per output,
on the 129 levels of int8. A graph derives them from the stored ones, which all graphs share: onnxruntime does this
once, on loading the graph, and needs at most `MOST` times 12 bytes for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from onnxscript import ir
from onnxscript.rewriter import RewriteRule, rewrite

from seqlab_export.passes.int8_rows import multiply_rows
from seqlab_export.passes.quantize import BLOCK

TINY = float(np.finfo(np.float32).tiny)
"""Divisor for weights of zeros."""
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
    return multiply_rows(op, x, op.Transpose(weight, perm=[1, 0]), scale)
