"""Targets of the exported graphs, and their requirements.

portable: only standard nodes, and growing caches. ort: attention and linear recurrences as onnxruntime's custom nodes,
and caches of fixed capacity, which a step may write in place. cuda-graph: caches of fixed capacity, and steps that a
CUDA graph can record: no nodes with subgraphs, and no dynamic dimensions except the batch and the source length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from onnxscript import ir

from seqlab.mixer import Mixer, fix_capacity
from seqlab.nn.operation import Lowerings
from seqlab_export.capture.precision import copy_sharing_weights
from seqlab_export.lowering import ONNXRUNTIME, STANDARD

TargetName = Literal["portable", "ort", "cuda-graph"]

_WITH_GRAPHS = ("If", "Loop", "Scan")


@dataclass(frozen=True)
class Target:
    """A target of graphs.

    Attributes:
        name: name in the manifest and on the command line.
        lowering: nodes for the blocks' operations.
        fixed_caches: True = caches have a capacity; False = they grow.
        recorded: True = a CUDA graph records the step: no shape may depend on data, nor an input have a row per source.
    """

    name: TargetName
    lowering: Lowerings
    fixed_caches: bool
    recorded: bool = False

    def fitted(self, model: Any, seq_len: int) -> Any:
        """A copy of a model in evaluation mode, on the CPU, in fp32. A fixed cache has room for the model's maximum
        sequence length, or for `seq_len` tokens if that is unlimited.

        Raises:
            ValueError: a CUDA graph needs fixed sizes, and a state grows although its mixer was given a capacity.
        """
        model = copy_sharing_weights(model).cpu().float().eval()
        if not self.fixed_caches or not model.kind.decodes:
            return model
        if any(entry.kind == "growing" for entry in model.state_spec()):
            model.max_seq_len = model.max_seq_len or seq_len
            fix_capacity(model, model.max_seq_len)
        if self.recorded:
            _check_fixed(model)
        return model

    def check_step(self, step: ir.Model) -> None:
        """Raises ValueError if a CUDA graph must record the step, and cannot."""
        if not self.recorded:
            return
        nested = sorted({node.op_type for node in step.graph if node.op_type in _WITH_GRAPHS})
        if nested:
            raise ValueError(
                f"target cuda-graph needs a step without {', '.join(nested)}, this model has it; use portable"
            )
        for value in (*step.graph.inputs, *step.graph.outputs):
            assert value.shape is not None
            free = {str(dim) for dim in value.shape if not isinstance(dim, int)} - {"B", "M"}
            assert not free, (value.name, free)


TARGETS: dict[str, Target] = {
    "portable": Target("portable", STANDARD, fixed_caches=False),
    "ort": Target("ort", ONNXRUNTIME, fixed_caches=True),
    "cuda-graph": Target("cuda-graph", STANDARD, fixed_caches=True, recorded=True),
}


def target_named(name: str) -> Target:
    """The target with this name; raises ValueError if it is unknown."""
    if name not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}, got {name!r}")
    return TARGETS[name]


def _check_fixed(model: Any) -> None:
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
