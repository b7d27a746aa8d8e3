"""Targets of the exported graphs, and their requirements.

portable: only standard nodes, and growing caches. ort: attention and linear recurrences as onnxruntime's custom nodes,
and caches of fixed capacity, which a step may write in place. cuda-graph: caches of fixed capacity, and steps that a
CUDA graph can record: no nodes with subgraphs, and no dynamic dimensions except the batch and the source length.
"""

from __future__ import annotations

from typing import Any, Literal

from onnxscript import ir

from seqlab.mixer import Mixer

Target = Literal["portable", "ort", "cuda-graph"]

_WITH_GRAPHS = ("If", "Loop", "Scan")
_WRITES_IN_PLACE = "GroupQueryAttention"


def capacity_of(model: Any, target: Target, seq_len: int) -> int | None:
    """Capacity of a model's caches in tokens: its maximum sequence length, or `seq_len` if that is unlimited. None =
    growing caches, or no caches."""
    if target == "portable" or not model.kind.decodes:
        return None
    if not any(entry.kind == "growing" for entry in model.state_spec()):
        return None
    return model.max_seq_len or seq_len


def check_capacity(model: Any) -> None:
    """Raises ValueError if a state of a decoder grows although its mixer was given a capacity: a CUDA graph needs fixed
    sizes."""
    for mixer in model.modules():
        if not isinstance(mixer, Mixer) or not mixer.causal:
            continue
        for entry in mixer.state_spec():
            if "S" in entry.dims:
                raise ValueError(
                    f"target cuda-graph needs a state of one size, and {entry.name} of {type(mixer).__name__} has the "
                    "dimension S, which grows with the text; where `capacity` is set, declare it with C and keep the "
                    "key of position p at place p (docs/contract.md), or use portable or ort"
                )


def in_place(step: ir.Model) -> tuple[str, ...]:
    """Names of the entries of the state that a node may update in place."""
    found = []
    for output in step.graph.outputs:
        node = output.producer()
        if node is not None and node.op_type == _WRITES_IN_PLACE and output.name is not None:
            found.append(output.name.removeprefix("new_state_"))
    return tuple(found)


def check_flat(step: ir.Model) -> None:
    """Raises ValueError if a CUDA graph cannot record the step."""
    nested = sorted({node.op_type for node in step.graph if node.op_type in _WITH_GRAPHS})
    if nested:
        raise ValueError(f"target cuda-graph needs a step without {', '.join(nested)}, this model has it; use portable")
    for value in (*step.graph.inputs, *step.graph.outputs):
        assert value.shape is not None
        free = {str(dim) for dim in value.shape if not isinstance(dim, int)} - {"B", "M"}
        assert not free, (value.name, free)
