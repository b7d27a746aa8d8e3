"""Targets that graphs are made for, and what they ask of the graphs.

portable: standard nodes alone, and caches that grow. ort: attention and linear recurrences as onnxruntime's own nodes,
and caches of fixed capacity, which a step may write in place. cuda-graph: caches of fixed capacity, and steps that a
CUDA graph can record: no node with a graph of its own, and no dimension but the batch and the source.
"""

from __future__ import annotations

from typing import Any, Literal

from onnxscript import ir

from seqlab.mixer import Mixer
from seqlab.models import ENCODERS

Target = Literal["portable", "ort", "cuda-graph"]

_WITH_GRAPHS = ("If", "Loop", "Scan")
_WRITES_IN_PLACE = "GroupQueryAttention"


def capacity_of(model: Any, target: Target, seq_len: int) -> int | None:
    """Capacity of a model's caches: the longest text that it reads, or `seq_len` where there is no limit. None = they
    grow, or there are none."""
    if target == "portable" or isinstance(model, ENCODERS):
        return None
    if not any(entry.kind == "growing" for entry in model.state_spec()):
        return None
    return model.max_seq_len or seq_len


def check_capacity(model: Any) -> None:
    """Raises ValueError where a state of a decoder grows though its mixer was given a capacity: a CUDA graph records
    one size."""
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
    """The entries of the state whose new value a node may write where the old one stands."""
    found = []
    for output in step.graph.outputs:
        node = output.producer()
        if node is not None and node.op_type == _WRITES_IN_PLACE and output.name is not None:
            found.append(output.name.removeprefix("new_state_"))
    return tuple(found)


def check_flat(step: ir.Model) -> None:
    """Raises ValueError where a CUDA graph could not record a step."""
    nested = sorted({node.op_type for node in step.graph if node.op_type in _WITH_GRAPHS})
    if nested:
        raise ValueError(f"target cuda-graph needs a step without {', '.join(nested)}, this model has it; use portable")
    for value in (*step.graph.inputs, *step.graph.outputs):
        assert value.shape is not None
        free = {str(dim) for dim in value.shape if not isinstance(dim, int)} - {"B", "M"}
        assert not free, (value.name, free)
