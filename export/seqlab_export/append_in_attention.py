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
        joins = [join for value in (keys, values) if (join := _joining(value, node)) is not None]
        if len(joins) < 2:
            continue
        (past_keys, new_keys), (past_values, new_values) = (join.inputs for join in joins)
        inputs = [query, new_keys, new_values, mask, past_keys, past_values]
        appending = ir.node("Attention", inputs, node.attributes, num_outputs=3, name=node.name)
        old = [node, *joins]
        ir.convenience.replace_nodes_and_values(
            graph, node, old, [appending], [one.outputs[0] for one in old], appending.outputs
        )


def _joining(value: ir.Value | None, reader: ir.Node) -> ir.Node | None:
    """What joins an entry of the state with something, along time, if that is what `value` is and `reader` alone reads
    it."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or node.inputs[0] is None:
        return None
    along_time = node.attributes.get_int("axis", 0) == -2 and node.inputs[0].is_graph_input()
    return node if along_time and {user for user, _ in node.outputs[0].uses()} == {reader} else None
