"""A form of a model as an ONNX graph.

It is first captured with named dimensions, which raises an error if a length would be frozen; `torch.onnx.export` alone
freezes it silently.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from io import StringIO
from typing import Any

import torch
from onnxscript import ir
from torch.export import Dim, ExportedProgram
from torch.onnx import OnnxExporterError
from torch.utils._pytree import tree_map

from seqlab.nn.operation import Lowerings, lowered
from seqlab_export.capture.graph_forms import Form, example, longest_input
from seqlab_export.capture.intermediate_form import IntermediateForm
from seqlab_export.capture.not_captured import why_not
from seqlab_export.runner.cases import traced_len
from seqlab_export.runner.manifest import GraphInfo, TensorInfo

OPSET = 23

# The traced sizes must all differ, or two dimensions may be unified; `traced_len` is at most 16.
_TRACED = {"B": 17, "S": 19, "M": 23, "K": 29}


@contextmanager
def quiet() -> Iterator[None]:
    """Mutes the exporters' progress messages, which are irrelevant to users."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def capture(form: Form | IntermediateForm, info: GraphInfo) -> ExportedProgram:
    """A form as an exported program, dynamic in the dimensions that `info` names.

    Raises:
        ValueError: the form cannot be captured for every size of these dimensions.
    """
    model: Any = form.model
    longest: int | None = model.max_seq_len
    sizes = {**_TRACED, "T": traced_len(longest)}
    symbols = {name: Dim(name, max=longest if name == "T" else None) for name in sizes}
    sizes["C"] = longest or 0
    if isinstance(form, IntermediateForm):
        # Attention weights of a recurrence over a source treat the first step separately from the others.
        symbols["T"] = Dim("T", min=3, max=longest)
    of_state = [tensor for tensor in info.inputs if tensor.name.startswith("state_")]
    state = {tensor.name.removeprefix("state_"): tensor for tensor in of_state}
    given = [tensor for tensor in info.inputs if tensor not in of_state and tensor.name != "scored"]
    if any("M" in tensor.dims for tensor in given):
        longest = longest_input(model)
        # If a target is read too, its length must differ.
        sizes["M"], symbols["M"] = traced_len(longest) - (len(given) > 2), Dim("M", max=longest)

    def dynamic(tensor: TensorInfo) -> dict[int, Any]:
        return {axis: symbols[dim] for axis, dim in enumerate(tensor.dims) if isinstance(dim, str) and dim in symbols}

    arguments = (*given, *([state] if state else []), *(tensor for tensor in info.inputs if tensor.name == "scored"))
    examples, dims = tree_map(partial(example, sizes=sizes), arguments), tree_map(dynamic, arguments)
    # Discards state from other captures in this process, such as the same code in another precision.
    torch.compiler.reset()
    try:
        # With gradients, scaled_dot_product_attention is captured differently if its mask has parameters.
        with quiet(), redirect_stderr(StringIO()), torch.no_grad():
            return torch.export.export(form, examples, dynamic_shapes=dims, strict=False)
    except Exception as error:
        raise ValueError(f"this model cannot be captured as {info.file}: {why_not(error)}") from error


def to_onnx(form: Form | IntermediateForm, info: GraphInfo, lowering: Lowerings) -> ir.Model:
    """The graph of a form, with the inputs and outputs of `info`.

    Raises:
        ValueError: the form cannot be captured for every size of its dimensions, or has an operation without nodes.
    """
    with lowered(lowering):
        program = capture(form, info)
    # Outside no_grad a Scan that closes over a tensor of dynamic size cannot be exported.
    with quiet(), torch.no_grad():
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
    return graph
