"""The graphs of a bundle: each form of a model is captured and rewritten, then all are stored with shared weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from onnxscript import ir

from seqlab.files.phases import counted
from seqlab_export.capture.plan import ExportPlan
from seqlab_export.capture.to_onnx import quiet, to_onnx
from seqlab_export.capture.weights import WeightFile, check_weights
from seqlab_export.lowering import ON_CUDA, QUANTIZED
from seqlab_export.passes.cache import fuse_cache_concat, slice_cache
from seqlab_export.passes.fold import fold_constants, fold_weights
from seqlab_export.passes.int8_products import multiply_as_int8
from seqlab_export.passes.keep_time_axis import keep_time_axis
from seqlab_export.passes.quantize import quantize, split_gemms, store_as_bfloat16
from seqlab_export.passes.share_products import join_weights, multiply_as_stored
from seqlab_export.passes.share_source_keys import SourceKeys
from seqlab_export.runner.manifest import GraphInfo

_WRITES_IN_PLACE = {"model": "ScatterElements", "step": "GroupQueryAttention"}
"""Operators by graph that may write over the state that they read."""


class Exported(NamedTuple):
    """The exported graphs and their shared weights.

    Attributes:
        graphs: graphs by their names in the manifest.
        in_place: as in the manifest.
    """

    graphs: dict[str, GraphInfo]
    in_place: tuple[str, ...]
    weights: WeightFile


class Pass(NamedTuple):
    """A rewrite of a graph.

    Attributes:
        name: part of the graph that is rewritten.
        when: True if this graph is rewritten.
        apply: the rewrite, in place if it returns None.
    """

    name: str
    when: bool
    apply: Callable[[ir.Model], ir.Model | None]


def passes_of(plan: ExportPlan, form: str, source_keys: SourceKeys) -> tuple[Pass, ...]:
    """The passes over the graph of a form, in order."""
    step, target, quantized = form == "step", plan.target, plan.precision in ("int8", "int4")
    shared = form in ("model", "step", "guess") and not quantized
    return (
        Pass("constants", not quantized, fold_constants),
        Pass("constants and weights", quantized, fold_weights),
        Pass("caches that grow", True, fuse_cache_concat),
        Pass("caches of fixed capacity", target.fixed_caches and not plan.for_cuda, slice_cache),
        Pass("layers with a bias", quantized, split_gemms),
        Pass("time axis", step, keep_time_axis),
        Pass("keys of a source", step and not target.recorded, source_keys.share),
        Pass("joined weights", shared, join_weights),
        Pass("products with weights of both graphs", shared, multiply_as_stored),
        Pass("linear layers in int8", plan.precision == "int8", partial(quantize, precision="int8")),
        Pass("linear layers in int4", plan.precision == "int4", partial(quantize, precision="int4")),
        Pass("products with int4 weights", plan.int8_products and not step, multiply_as_int8),
        Pass("weights in bfloat16", plan.precision == "bf16", store_as_bfloat16),
        Pass("names", True, _distinguish),
        Pass("metadata", True, _strip),
    )


@quiet()
def export_graphs(plan: ExportPlan, folder: Path) -> Exported:
    """Writes the graph of each form of a plan, and their shared weights.

    Raises:
        ValueError: the model cannot be captured for every batch size and length, or for this target, or a weight in a
            graph is not the model's.
    """
    infos: dict[str, GraphInfo] = {}
    in_place: dict[str, list[str]] = {}
    lowering = {**plan.target.lowering, **(QUANTIZED if plan.precision in ("int8", "int4") else {})}
    if plan.for_cuda:
        lowering |= ON_CUDA
    with WeightFile(folder) as weights:
        for name, form in counted("capturing graphs", plan.forms.items()):
            source_keys = SourceKeys(plan.source_inputs)
            graph = to_onnx(form, plan.infos[name], lowering)
            for _, when, apply in passes_of(plan, name, source_keys):
                graph = (apply(graph) or graph) if when else graph
            infos[name] = _with_sources(plan.infos[name], source_keys.shared)
            _declare(graph, infos[name], plan.model.max_seq_len)
            if name == "step":
                plan.target.check_step(graph)
            if name in _WRITES_IN_PLACE:
                in_place[name] = _written_in_place(graph, _WRITES_IN_PLACE[name])
            weights.take(graph)
            ir.save(graph, folder / infos[name].file)
    check_weights(plan.stored, weights.named)
    in_both = [entry for entry in in_place.get("step", []) if entry in in_place["model"]]
    return Exported(infos, tuple(in_both), weights)


def _with_sources(info: GraphInfo, shared: set[str]) -> GraphInfo:
    """`info`, with one row per source in the shared inputs."""
    inputs = (replace(given, dims=("N", *given.dims[1:])) if given.name in shared else given for given in info.inputs)
    return replace(info, inputs=tuple(inputs))


def _declare(graph: ir.Model, info: GraphInfo, max_seq_len: int | None) -> None:
    """Names the dimensions of inputs and outputs as in `info`; raises ValueError if one was frozen or lost."""
    for value, tensor in zip([*graph.graph.inputs, *graph.graph.outputs], [*info.inputs, *info.outputs], strict=True):
        assert value.name == tensor.name and value.shape is not None, (value, tensor)
        found = [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
        shape = tensor.shape(max_seq_len)
        for dim, expected in zip(found, shape, strict=True):
            if isinstance(dim, int) != isinstance(expected, int) or (isinstance(dim, int) and dim != expected):
                raise ValueError(
                    f"{info.file} declares {value.name} as {found}, it should be {shape}: "
                    "the capture froze or lost a dimension"
                )
        value.shape = ir.Shape(shape)


def _distinguish(graph: ir.Model) -> None:
    """Renames results whose name another one has: passes name theirs without regard to those within a `Scan`."""
    nodes = [*ir.traversal.RecursiveGraphIterator(graph.graph)]
    graphs = {node.graph for node in nodes if node.graph is not None}
    names = {given.name for each in graphs for given in (*each.inputs, *each.initializers.values())}
    for node in nodes:
        for value in node.outputs:
            while value.name in names:
                value.name = f"{value.name}_"
            names.add(value.name)


def _strip(graph: ir.Model) -> None:
    """Removes metadata specific to this machine (stack traces, paths)."""
    graph.metadata_props.clear()
    graph.graph.metadata_props.clear()
    for node in ir.traversal.RecursiveGraphIterator(graph.graph):
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*graph.graph.inputs, *graph.graph.initializers.values()):
        value.metadata_props.clear()


def _written_in_place(graph: ir.Model, operator: str) -> list[str]:
    """Names of the entries of the state that a node of this operator may update in place: whatever else reads the old
    value has run before it."""
    found = []
    inputs = {given.name: given for given in graph.graph.inputs}
    for output in graph.graph.outputs:
        node, old = output.producer(), inputs.get((output.name or "").removeprefix("new_"))
        if node is None or node.op_type != operator or old not in node.inputs:
            continue
        before = _ancestors(node)
        if old is not None and all(reader in before for reader, _ in old.uses()):
            found.append((output.name or "").removeprefix("new_state_"))
    return found


def _ancestors(node: ir.Node) -> set[ir.Node]:
    """A node, and all nodes from which it computes its outputs."""
    found, left = {node}, [node]
    while left:
        makers = {maker for given in left.pop().inputs if given is not None and (maker := given.producer()) is not None}
        left += makers - found
        found |= makers
    return found
