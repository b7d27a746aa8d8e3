"""Lets attention append to the cache that it reads, as ONNX's `Attention` can: no other node copies the cache, and its
threads find at hand what they copied."""

from __future__ import annotations

from onnxscript import ir


def append_in_attention(model: ir.Model) -> None:
    """Gives each `Attention` that reads the state's keys and values joined with new ones the state's as its past. The
    new state is its present."""
    graph = model.graph
    for node in [node for node in graph if node.op_type == "Attention" and len(node.inputs) == 4]:
        query, keys, values, mask = node.inputs
        joined = [value for value in (keys, values) if value is not None and _is_appended(value, node)]
        if len(joined) < 2:
            continue
        nodes = [value.producer() for value in joined]
        (past_keys, new_keys), (past_values, new_values) = (node.inputs for node in nodes if node is not None)
        inputs = [query, new_keys, new_values, mask, past_keys, past_values]
        appending = ir.node("Attention", inputs, node.attributes, num_outputs=3, name=node.name)
        old = [node, *(one for one in nodes if one is not None)]
        ir.convenience.replace_nodes_and_values(
            graph, node, old, [appending], [node.outputs[0], *joined], appending.outputs
        )


def _is_appended(value: ir.Value, reader: ir.Node) -> bool:
    """Whether it is an entry of the state joined with something, along time, and read by `reader` alone."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or node.inputs[0] is None:
        return False
    along_time = node.attributes.get_int("axis", 0) == -2
    return along_time and node.inputs[0].is_graph_input() and {user for user, _ in value.uses()} == {reader}
