"""Attends to what is written of a cache of fixed capacity, and not to the room that is left."""

from __future__ import annotations

from onnxscript import ir


def attend_to_written(model: ir.Model) -> None:
    """Cuts keys, values and mask of each `Attention` over such caches to as many places as the longest row has taken,
    and one: a row of pads alone attends to the next.

    Not for CUDA graphs, where no dimension may follow from a number.
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
    """Whether it is a new entry of the state with the new keys or values in their places."""
    node = None if value is None else value.producer()
    return node is not None and node.op_type == "ScatterElements" and node.outputs[0].is_graph_output()
