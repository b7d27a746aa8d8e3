"""Removal of redundant Squeeze and Unsqueeze nodes on the time axis of a step.

A step reads one token per row. Most layers read it as (B, D), attention and similar mixers as (B, 1, D). Nodes that act
on the last axis can all read (B, 1, D); a node that removes or restores the axis costs as much as any other small one.
"""

from __future__ import annotations

from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript import ir

_BY_LAST_AXIS = {
    *("Add", "Div", "Gather", "LayerNormalization", "MatMul", "Mul", "RMSNormalization", "Sub"),
    *("Erf", "Gelu", "Relu", "Sigmoid", "Softplus", "Swish", "Tanh"),
}


def keep_time_axis(step: ir.Model) -> None:
    """Moves each Squeeze of the time axis past the nodes that read it, until it cancels an Unsqueeze."""
    graph = step.graph
    if any(node.op_type == "Gemm" for node in graph):
        return  # Gemm only accepts matrices
    whole: dict[ir.Value | None, ir.Value] = {}
    for node in list(graph):
        output = node.outputs[0]
        rows = [value for value in node.inputs if value is not None and not _is_weight(value)]
        if is_of_time(node, "Squeeze"):
            whole[output] = rows[0]
        elif is_of_time(node, "Unsqueeze") and rows[0] in whole:
            if output.is_graph_output():
                whole[rows[0]].name = output.name
            output.replace_all_uses_with(whole[rows[0]], replace_graph_outputs=True)
        elif rows and whole.keys() >= {*rows} and _acts_by_last_axis(node, rows):
            squeezed = _squeezed_behind(node, graph)
            for place, value in enumerate(node.inputs):
                node.replace_input_with(place, whole.get(value, value))
            whole[squeezed] = output
    RemoveUnusedNodesPass()(step)


def _squeezed_behind(node: ir.Node, graph: ir.Graph) -> ir.Value:
    """Stand-in for the output (B, D) of a node, which itself becomes (B, 1, D)."""
    [output] = node.outputs
    axes = ir.node("Constant", [], {"value_ints": [1]})
    squeeze = ir.node("Squeeze", [None, axes.outputs[0]])
    [squeezed] = squeeze.outputs
    output.replace_all_uses_with(squeezed)
    squeeze.replace_input_with(0, output)
    graph.insert_after(node, [axes, squeeze])
    squeezed.shape, squeezed.type = output.shape, output.type
    assert output.shape is not None
    output.shape = ir.Shape([output.shape[0], 1, output.shape[1]])
    return squeezed


def is_of_time(node: ir.Node, op_type: str) -> bool:
    """True for a `Squeeze` or `Unsqueeze`, whichever `op_type` names, of the second axis."""
    axes = node.inputs[1] if node.op_type == op_type and len(node.inputs) == 2 else None
    constant = None if axes is None else ir.convenience.get_const_tensor(axes)
    return constant is not None and constant.numpy().tolist() == [1]


def _acts_by_last_axis(node: ir.Node, rows: list[ir.Value]) -> bool:
    """True if a node maps `rows`, its non-weight inputs, to (B, D), and would equally map (B, 1, D) inputs."""
    output = node.outputs[0]
    if node.op_type not in _BY_LAST_AXIS or output.is_graph_output() or output.shape is None or len(output.shape) != 2:
        return False
    if node.op_type == "Gather":
        return rows == [node.inputs[1]] and node.attributes.get_int("axis", 0) == 0
    if node.op_type == "MatMul":
        return rows == [node.inputs[0]]
    return node.attributes.get_int("axis", -1) == -1


def _is_weight(value: ir.Value) -> bool:
    """True for an initializer or a transposed initializer."""
    node = value.producer()
    if node is None:
        return value.is_initializer()
    return node.op_type == "Transpose" and node.inputs[0] is not None and node.inputs[0].is_initializer()
