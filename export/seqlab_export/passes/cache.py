"""Rewrites of attention over a KV cache: it appends to the cache, and reads only the written part."""

from __future__ import annotations

from onnxscript import ir


def fuse_cache_concat(model: ir.Model) -> None:
    """Lets attention append to the cache that it reads, as ONNX's `Attention` can: no other node copies the cache, and
    each thread still has in its CPU cache the part that it copied.

    An `Attention` that reads the concatenation of cached and new keys and values gets the cached ones as its past. The
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
    """The Concat node that appends to an entry of the state along time, if it produces `value` and only `reader` reads
    it; else None."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or node.inputs[0] is None:
        return None
    along_time = node.attributes.get_int("axis", 0) == -2 and node.inputs[0].is_graph_input()
    return node if along_time and {user for user, _ in node.outputs[0].uses()} == {reader} else None


def slice_cache(model: ir.Model) -> None:
    """Restricts attention over caches of fixed capacity to their written part.

    Slices keys, values and mask of each `Attention` over such caches to the length of the longest row plus one: a row
    of only pads attends to the next position.

    Not for CUDA: the host would wait for the length, and a CUDA graph cannot have shapes that depend on data.
    """
    graph = model.graph
    taken = next((value for value in graph.outputs if value.name == "new_state_position"), None)
    attentions = [node for node in graph if node.op_type == "Attention" and all(map(_is_cache, node.inputs[1:3]))]
    if taken is None or not attentions:
        return
    start, one, of_keys, of_mask = (ir.node("Constant", [], {"value_ints": [number]}) for number in (0, 1, -2, -1))
    longest = ir.node("ReduceMax", [taken], {"keepdims": 1})
    end = ir.node("Add", [longest.outputs[0], one.outputs[0]])
    graph.insert_before(attentions[0], [start, one, of_keys, of_mask, longest, end])
    for node in attentions:
        for place, axis in ((1, of_keys), (2, of_keys), (3, of_mask)):
            cut = ir.node("Slice", [node.inputs[place], *(given.outputs[0] for given in (start, end, axis))])
            graph.insert_before(node, cut)
            node.replace_input_with(place, cut.outputs[0])
    graph.sort()


def _is_cache(value: ir.Value | None) -> bool:
    """True for a new entry of the state into which new keys or values were scattered."""
    node = None if value is None else value.producer()
    return node is not None and node.op_type == "ScatterElements" and node.outputs[0].is_graph_output()
