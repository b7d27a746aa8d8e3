"""Stores the weights of a captured graph as bfloat16. They are cast to float32, in which the graph computes: no runtime
needs arithmetic in bfloat16, and onnxruntime casts once, when it loads the graph."""

from __future__ import annotations

import torch
from onnxscript import ir

from seqlab_export.weights import SMALLEST_BYTES


def store_as_bfloat16(graph: ir.Model) -> None:
    """Stores every weight that bfloat16 holds exactly, but for the smallest, in half of its bytes."""
    first = graph.graph[0]
    for name, value in graph.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None, name
        if tensor.dtype != ir.DataType.FLOAT or tensor.nbytes < SMALLEST_BYTES:
            continue
        weight = torch.tensor(tensor.numpy())
        if not torch.equal(weight.bfloat16().float(), weight):
            continue
        cast = ir.node("Cast", [None], {"to": ir.DataType.FLOAT}, name=f"{name}_float32")
        [widened] = cast.outputs
        widened.name, widened.shape, widened.type = f"{name}_float32", value.shape, value.type
        value.replace_all_uses_with(widened)
        cast.replace_input_with(0, value)
        value.const_value = ir.tensor(weight.bfloat16(), name=name)
        value.type = ir.TensorType(ir.DataType.BFLOAT16)
        graph.graph.insert_before(first, cast)
