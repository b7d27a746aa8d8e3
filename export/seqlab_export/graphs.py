"""Capture of the forms of a model as ONNX graphs.

A model is first captured with named dimensions, which raises an error if a length would be frozen;
`torch.onnx.export` alone freezes it silently.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from torch.export import Dim, ExportedProgram
from torch.onnx import OnnxExporterError

from seqlab.nn.operation import lowered
from seqlab_export.capture.graph_forms import (
    Form,
    check_states,
    example,
    forms_of,
    longest_input,
    of_source,
    state_info,
)
from seqlab_export.capture.not_captured import why_not
from seqlab_export.capture.precision import Precision
from seqlab_export.capture.target import Target, check_flat, in_place
from seqlab_export.capture.weights import SMALLEST_BYTES, WeightFile
from seqlab_export.lowering import ONNXRUNTIME, STANDARD
from seqlab_export.passes.cache import fuse_cache_concat, slice_cache
from seqlab_export.passes.int8_products import multiply_as_int8
from seqlab_export.passes.keep_time_axis import keep_time_axis
from seqlab_export.passes.quantize import quantize, split_gemms, store_as_bfloat16
from seqlab_export.passes.share_source_keys import share_source_keys
from seqlab_export.proof.taps import Tap, TapsForm
from seqlab_export.runner.cases import traced_len
from seqlab_export.runner.manifest import GraphInfo, StateInfo, TensorInfo

OPSET = 23

Described = TypeVar("Described", bound=TensorInfo)

# The traced sizes must all differ, or two dimensions may be unified; `traced_len` is at most 16.
_TRACED = {"B": 17, "S": 19, "M": 23}


class Exported(NamedTuple):
    """The exported graphs and weights.

    Attributes:
        graphs: graphs by their names in the manifest.
        state, in_place: as in the manifest.
        stored, named, kinds: as in `WeightFile`.
    """

    graphs: dict[str, GraphInfo]
    state: tuple[StateInfo, ...]
    in_place: tuple[str, ...]
    stored: dict[bytes, tuple[int, int]]
    named: set[tuple[str, bytes]]
    kinds: set[ir.DataType]


def export_graphs(
    model: Any,
    folder: Path,
    precision: Precision = "fp32",
    *,
    target: Target = "portable",
    taps: Sequence[Tap] = (),
    as_int8: bool = False,
) -> Exported:
    """Writes the graph of each of a model's forms, and their shared weights.

    Args:
        model: model in evaluation mode, on the CPU.
        precision: storage type of the weights; fp32 and fp16 = unchanged.
        target: target that the graphs are built for.
        taps: outputs of a debug graph; empty = no debug graph.
        as_int8: if True, graphs that read whole sequences multiply int4 weights as int8.

    Raises:
        ValueError: the model cannot be captured for every batch size and length, or for this target, or its mixers'
            states differ from their declarations.
    """
    graphs: dict[str, GraphInfo] = {}
    renewed: tuple[str, ...] = ()
    shared: set[str] = set()
    forms: dict[str, Any] = {**forms_of(model)}
    decodes = "step" in forms
    if decodes:
        check_states(model)
    if taps:
        forms["taps"] = TapsForm(model, taps)
    with WeightFile(folder) as weights:
        for name, form in forms.items():
            graphs[name] = info = form.info()
            graph = _to_onnx(form, info, fold_weights=precision in ("int8", "int4"), fused=target == "ort")
            fuse_cache_concat(graph)
            if target == "ort":
                slice_cache(graph)
            if precision in ("int8", "int4"):
                split_gemms(graph)
            if name == "step":
                renewed = in_place(graph)
                with _quiet():
                    keep_time_axis(graph)
                    read = {f"state_{name}" for name in of_source(model)}
                    shared = set() if target == "cuda-graph" else share_source_keys(graph, read)
                graphs[name] = info = replace(info, inputs=tuple(_of_source(tensor, shared) for tensor in info.inputs))
            if precision in ("int8", "int4"):
                with _quiet():
                    graph = quantize(graph, precision)
                    if as_int8 and name != "step":
                        multiply_as_int8(graph)
            _declare(graph, info, model.max_seq_len)
            if name == "step" and target == "cuda-graph":
                check_flat(graph)
            _strip(graph)
            if precision == "bf16":
                store_as_bfloat16(graph)
            weights.take(graph)
            ir.save(graph, folder / info.file)
    state = state_info(model) if decodes else ()
    described = tuple(_of_source(entry, shared, "state_") for entry in state)
    return Exported(graphs, described, renewed, weights.stored, weights.named, weights.kinds)


def capture(form: Form | TapsForm, info: GraphInfo) -> ExportedProgram:
    """A form as an exported program, dynamic in the dimensions that `info` names.

    Raises:
        ValueError: the form cannot be captured for every size of these dimensions.
    """
    model: Any = form.model
    longest: int | None = model.max_seq_len
    sizes = {**_TRACED, "T": traced_len(longest)}
    symbols = {name: Dim(name, max=longest if name == "T" else None) for name in sizes}
    sizes["C"] = longest or 0
    if isinstance(form, TapsForm):
        # Attention weights of a recurrence over a source treat the first step separately from the others.
        symbols["T"] = Dim("T", min=3, max=longest)
    given = [tensor for tensor in info.inputs if not tensor.name.startswith("state_")]
    state = {tensor.name.removeprefix("state_"): tensor for tensor in info.inputs if tensor not in given}
    if any("M" in tensor.dims for tensor in given):
        longest = longest_input(model)
        # If a target is read too, its length must differ.
        sizes["M"], symbols["M"] = traced_len(longest) - (len(given) > 2), Dim("M", max=longest)

    def dynamic(tensor: TensorInfo) -> dict[int, Any]:
        return {axis: symbols[dim] for axis, dim in enumerate(tensor.dims) if isinstance(dim, str) and dim in symbols}

    examples: list[Any] = [example(tensor, sizes) for tensor in given]
    dims: list[Any] = [dynamic(tensor) for tensor in given]
    if state:
        examples.append({name: example(tensor, sizes) for name, tensor in state.items()})
        dims.append({name: dynamic(tensor) for name, tensor in state.items()})
    # Discards state from other captures in this process, such as the same code in another precision.
    torch.compiler.reset()
    try:
        # With gradients, scaled_dot_product_attention is captured differently if its mask has parameters.
        with _quiet(), redirect_stderr(StringIO()), torch.no_grad():
            return torch.export.export(form, tuple(examples), dynamic_shapes=tuple(dims), strict=False)
    except Exception as error:
        raise ValueError(f"this model cannot be captured as {info.file}: {why_not(error)}") from error


def _to_onnx(form: Form | TapsForm, info: GraphInfo, *, fold_weights: bool, fused: bool) -> ir.Model:
    with lowered(ONNXRUNTIME if fused else STANDARD):
        program = capture(form, info)
    # Outside no_grad a Scan that closes over a tensor of dynamic size cannot be exported.
    with _quiet(), torch.no_grad():
        try:
            exported = torch.onnx.export(
                program,
                opset_version=OPSET,
                input_names=[tensor.name for tensor in info.inputs],
                output_names=[tensor.name for tensor in info.outputs],
                verbose=False,
                optimize=False,
            )
        except OnnxExporterError as error:
            raise ValueError(f"this model cannot be written as {info.file}: {why_not(error)}") from error
        assert exported is not None
        graph: ir.Model = exported.model
        if fold_weights:
            # No size limit: a weight that is also a table is stored a second time.
            optimize_ir(graph, should_fold=_must_fold, output_size_limit=sys.maxsize)
        else:
            optimize_ir(graph, should_fold=_may_fold)
    return graph


def _may_fold(node: ir.Node) -> bool | None:
    """False if a weight would be rewritten (e.g. transposed): both graphs share the weight as stored in the model."""
    constants = [value.const_value for value in node.inputs if value is not None and value.const_value is not None]
    return False if any(tensor.nbytes >= SMALLEST_BYTES for tensor in constants) else None


def _must_fold(node: ir.Node) -> bool | None:
    """True if weights are transposed or concatenated: only constants are quantised."""
    if node.op_type not in ("Transpose", "Concat"):
        return None
    return True if all(given is not None and given.const_value is not None for given in node.inputs) else None


def _of_source(tensor: Described, shared: Collection[str], prefix: str = "") -> Described:
    """The tensor with one row per source, if its input is among those returned by `share_source_keys`."""
    return replace(tensor, dims=("N", *tensor.dims[1:])) if prefix + tensor.name in shared else tensor


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


@contextmanager
def _quiet() -> Iterator[None]:
    """Mutes the exporters' progress messages, which are irrelevant to users."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
