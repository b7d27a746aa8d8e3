"""Products of a decoder's two graphs in one form, so that a runtime keeps one copy of their weights.

onnxruntime rearranges ("packs") the weight of each product when it loads a graph. Graphs share the result if they
multiply the same stored tensor by the same operator. Where a step reads (B, D), it is captured with `Gemm` of the
weight as the model stores it. Every product of a sequence (B, T, D), and of a step that reads (B, 1, D), is captured as
`MatMul` of a transposed weight, which onnxruntime copies first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript import ir

from seqlab_export.capture.weights import JOIN
from seqlab_export.passes.keep_time_axis import is_of_time


def join_weights(model: ir.Model) -> None:
    """Replaces the concatenation of weights, e.g. those of queries, keys and values, by one stored weight."""
    graph = model.graph
    for node in [node for node in graph if node.op_type == "Concat" and node.attributes["axis"].as_int() == 0]:
        parts = [value for value in node.inputs if value is not None and value.is_initializer()]
        tensors = [value.const_value for value in parts if value.const_value is not None]
        if len(tensors) < len(node.inputs):
            continue
        name = JOIN.join(str(value.name) for value in parts)
        if name not in graph.initializers:
            tensor = ir.tensor(np.concatenate([tensor.numpy() for tensor in tensors]), name=name)
            shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
            graph.register_initializer(ir.Value(name=name, const_value=tensor, shape=shape, type=kind))
        node.outputs[0].replace_all_uses_with(graph.initializers[name])
        graph.remove(node, safe=True)
    RemoveUnusedNodesPass()(model)


def multiply_as_stored(model: ir.Model) -> None:
    """Replaces each `MatMul` of (B, T, D) with a transposed weight by `Gemm` of (B T, D) with the stored weight."""
    flat = _Flattening(model.graph)
    for node in [node for node in model.graph if node.op_type == "MatMul"]:
        weight, [product] = _stored(node.inputs[1]), node.outputs
        if weight is not None and product.shape is not None and len(product.shape) == 3:
            flat.replace(node, weight, product)
    RemoveUnusedNodesPass()(model)


def _stored(value: ir.Value | None) -> ir.Value | None:
    """The weight (O, D) of which `value` is the transposition, if any."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Transpose" or node.inputs[0] is None or not node.inputs[0].is_initializer():
        return None
    weight = node.inputs[0]
    return weight if weight.shape is not None and len(weight.shape) == 2 else None


class _Flattening:
    """Products of a graph over rows (B T, D) instead of (B, T, D)."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._rows: dict[ir.Value, ir.Value] = {}
        self._shapes: dict[tuple[int | str | None, ...], ir.Value] = {}

    def replace(self, node: ir.Node, weight: ir.Value, product: ir.Value) -> None:
        """Replaces a product (B, T, O) of x (B, T, D) with a transposed weight (O, D)."""
        x = node.inputs[0]
        assert x is not None and weight.shape is not None and product.shape is not None
        outputs, width = weight.shape
        found = self._add(node, "Gemm", [self._flattened(node, x, width), weight], transB=1)
        found.type, found.shape = product.type, ir.Shape([None, outputs])
        for user, place in tuple(product.uses()):
            if user.op_type == "Reshape" and _gives_sizes(user.inputs[1]):
                user.replace_input_with(place, found)
            elif is_of_time(user, "Squeeze") and not user.outputs[0].is_graph_output():
                user.outputs[0].replace_all_uses_with(found)
                self._graph.remove(user, safe=True)
        if product.uses() or product.is_graph_output():
            restored = self._restored(node, x, found, product.shape)
            restored.name, restored.shape, restored.type = product.name, product.shape, product.type
            product.replace_all_uses_with(restored, replace_graph_outputs=True)
        self._graph.remove(node, safe=True)

    def _flattened(self, node: ir.Node, x: ir.Value, width: Any) -> ir.Value:
        """x (B, T, D) as (B T, D)."""
        before = x.producer()
        source = x if before is None else before.inputs[0]
        if before is not None and source is not None and is_of_time(before, "Unsqueeze"):
            return source
        if x not in self._rows:
            reshaped = source if before is not None and before.op_type == "Reshape" else x
            self._rows[x] = self._add(node, "Reshape", [reshaped, self._constant(node, -1, width)])
        return self._rows[x]

    def _restored(self, node: ir.Node, x: ir.Value, found: ir.Value, shape: ir.Shape) -> ir.Value:
        """A product (B T, O) as (B, T, O)."""
        if shape[1] == 1:
            return self._add(node, "Unsqueeze", [found, self._constant(node, 1)])
        dims = (*(dim if isinstance(dim, int) else dim.value for dim in shape),)
        size = self._shapes.get(dims)
        if size is None or None in dims:
            before = self._add(node, "Shape", [x], end=-1)
            size = self._shapes[dims] = self._add(node, "Concat", [before, self._constant(node, shape[2])], axis=0)
        return self._add(node, "Reshape", [found, size])

    def _constant(self, node: ir.Node, *numbers: Any) -> ir.Value:
        return self._add(node, "Constant", [], value_ints=[*numbers])

    def _add(self, before: ir.Node, operator: str, inputs: list[ir.Value | None], **attributes: Any) -> ir.Value:
        added = ir.node(operator, inputs, attributes)
        self._graph.insert_before(before, added)
        return added.outputs[0]


def _gives_sizes(shape: ir.Value | None) -> bool:
    """True unless a `Reshape` to this shape may copy a dimension of its input, as a 0 does."""
    node = None if shape is None else shape.producer()
    parts = node.inputs if node is not None and node.op_type == "Concat" else [shape]
    constants = [ir.convenience.get_const_tensor(part) for part in parts if part is not None]
    return not any(0 in tensor.numpy() for tensor in constants if tensor is not None)
