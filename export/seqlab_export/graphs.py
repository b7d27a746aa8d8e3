"""Captures a decoder as two ONNX graphs with one signature: whole sequences, and one token.

Capturing first, with named dimensions, raises where a length would be frozen; `torch.onnx.export` alone freezes it
in silence.

B batch, T tokens given, S tokens before, V vocabulary.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from torch import Tensor, nn
from torch.export import Dim

from seqlab.mixer import State
from seqlab.models import DecoderLM
from seqlab.nn.onnx_mode import emit_onnx
from seqlab_export.manifest import GraphInfo, StateInfo, TensorInfo
from seqlab_export.weights import SMALLEST_BYTES, WeightFile

OPSET = 23

# Sizes that are captured must all differ, or two dimensions may become one; traced_len is at most 16.
_TRACED_BATCH = 17
_TRACED_CACHE = 19


def traced_len(model: DecoderLM) -> int:
    """The length to capture a model with: at most 16, and a quarter of what it can read, to test four times it."""
    return 16 if model.max_seq_len is None else min(max(model.max_seq_len // 4, 2), 16)


class SequenceForm(nn.Module):
    """`DecoderLM.forward` from a state."""

    def __init__(self, model: DecoderLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, T) to logits (B, T, V), and the new state."""
        logits, new_state = self.model(tokens, state, pad_mask=pad_mask)
        # An input that is also an output as it stands would lose its name.
        return logits, {
            name: new_state[name].clone() if new_state[name] is old else new_state[name] for name, old in state.items()
        }


class StepForm(nn.Module):
    """`DecoderLM.step` with the signature of `SequenceForm` at T = 1. A pad is the identity."""

    def __init__(self, model: DecoderLM) -> None:
        super().__init__()
        self.model = model
        self.fixed = [entry.name for entry in describe_state(model) if "S" not in entry.dims]

    def forward(self, tokens: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens and pad_mask (B, 1) to logits (B, 1, V), and the new state."""
        logits, new_state = self.model.step(tokens.squeeze(1), state)
        for name in self.fixed:
            real = pad_mask.view(-1, *[1] * (state[name].dim() - 1))
            new_state[name] = torch.where(real, new_state[name], state[name])
        if "key_mask" in state:
            new_state["key_mask"] = torch.cat((state["key_mask"], pad_mask), dim=1)
        return logits.unsqueeze(1), {name: new_state[name] for name in state}


def describe_state(model: DecoderLM) -> tuple[StateInfo, ...]:
    """The entries of a model's state. A dimension that grows with the tokens read is "S".

    Raises:
        ValueError: an entry grows otherwise than from 0 by one a token, or does not start as one constant.
    """
    batch_size = 3
    start = model.init_state(batch_size)
    with torch.no_grad():
        ends = [model(torch.zeros(batch_size, n, dtype=torch.int64), start)[1] for n in (1, 2)]
    entries = []
    for name, entry in start.items():
        dims: list[str | int] = ["B"]
        for sizes in list(zip(entry.shape, *(end[name].shape for end in ends), strict=True))[1:]:
            if len(set(sizes)) > 1 and sizes != (0, 1, 2):
                raise ValueError(
                    f"state entry {name} has a dimension of {sizes[0]}, {sizes[1]} and {sizes[2]} after 0, 1 and 2 "
                    "tokens; a bundle can hold one that is fixed or one that counts the tokens"
                )
            dims.append(sizes[0] if len(set(sizes)) == 1 else "S")
        values = entry.flatten().tolist()
        if len(set(values)) > 1:
            raise ValueError(f"state entry {name} does not start as one constant, so a bundle cannot hold it")
        initial = float(values[0]) if values else 0.0
        dtype = str(entry.dtype).removeprefix("torch.")
        entries.append(StateInfo(name=name, dtype=dtype, dims=tuple(dims), initial=initial))
    return tuple(entries)


def export_graphs(model: DecoderLM, folder: Path) -> tuple[GraphInfo, GraphInfo]:
    """Writes `model.onnx`, `step.onnx` and the weights that they share.

    Args:
        model: in evaluation mode, on the CPU.

    Raises:
        ValueError: the model cannot be captured for every batch size and length.
    """
    state = describe_state(model)
    with WeightFile(folder) as weights:
        sequence = _export(SequenceForm(model), traced_len(model), state, folder / "model.onnx", weights)
        step = _export(StepForm(model), 1, state, folder / "step.onnx", weights)
    return sequence, step


def _export(
    form: SequenceForm | StepForm, length: int, state: tuple[StateInfo, ...], path: Path, weights: WeightFile
) -> GraphInfo:
    info = _signature(form.model, state, path.name, stepwise=length == 1)
    graph = _capture(form, length, state, info)
    _declare(graph, info)
    _strip(graph)
    weights.take(graph)
    ir.save(graph, path)
    return info


def _signature(model: DecoderLM, state: tuple[StateInfo, ...], file: str, *, stepwise: bool) -> GraphInfo:
    length: str | int = 1 if stepwise else "T"
    longer = "S+1" if stepwise else "S+T"
    logits_dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    inputs = [
        TensorInfo(name="tokens", dtype="int64", dims=("B", length)),
        TensorInfo(name="pad_mask", dtype="bool", dims=("B", length)),
    ]
    outputs = [TensorInfo(name="logits", dtype=logits_dtype, dims=("B", length, model.vocab_size))]
    for entry in state:
        new_dims = tuple(longer if dim == "S" else dim for dim in entry.dims)
        inputs.append(TensorInfo(name=f"state_{entry.name}", dtype=entry.dtype, dims=entry.dims))
        outputs.append(TensorInfo(name=f"new_state_{entry.name}", dtype=entry.dtype, dims=new_dims))
    return GraphInfo(file=file, inputs=tuple(inputs), outputs=tuple(outputs))


def _capture(form: SequenceForm | StepForm, length: int, state: tuple[StateInfo, ...], info: GraphInfo) -> ir.Model:
    sizes = {"B": _TRACED_BATCH, "T": length, "S": _TRACED_CACHE}
    symbols = {"B": Dim("B"), "T": Dim("T", max=form.model.max_seq_len), "S": Dim("S")}

    def example(tensor: TensorInfo) -> Tensor:
        dtype = getattr(torch, tensor.dtype)
        return torch.zeros([sizes[dim] if isinstance(dim, str) else dim for dim in tensor.dims], dtype=dtype)

    def dynamic(tensor: TensorInfo) -> dict[int, Any]:
        return {axis: symbols[dim] for axis, dim in enumerate(tensor.dims) if isinstance(dim, str)}

    tokens, pad_mask = info.inputs[:2]
    try:
        # With gradients, scaled_dot_product_attention is captured differently where its mask has parameters.
        with emit_onnx(), torch.no_grad():
            program = torch.export.export(
                form,
                (example(tokens), example(pad_mask), {entry.name: example(entry) for entry in state}),
                dynamic_shapes=(dynamic(tokens), dynamic(pad_mask), {entry.name: dynamic(entry) for entry in state}),
                strict=False,
            )
    except Exception as error:
        raise ValueError(f"this model cannot be captured as {info.file}: {error}") from error
    # Outside no_grad a Scan that closes over a tensor of dynamic size cannot be exported.
    with _quiet(), torch.no_grad():
        exported = torch.onnx.export(
            program,
            opset_version=OPSET,
            input_names=[tensor.name for tensor in info.inputs],
            output_names=[tensor.name for tensor in info.outputs],
            verbose=False,
            optimize=False,
        )
        assert exported is not None
        graph: ir.Model = exported.model
        optimize_ir(graph, should_fold=_may_fold)
    return graph


def _may_fold(node: ir.Node) -> bool | None:
    """False where a weight would be rewritten (transposed, say): both graphs share it as the model has it."""
    constants = [value.const_value for value in node.inputs if value is not None]
    return False if any(tensor is not None and tensor.nbytes >= SMALLEST_BYTES for tensor in constants) else None


def _declare(graph: ir.Model, info: GraphInfo) -> None:
    """Gives the dimensions of inputs and outputs our names, where they are as free as they should be."""
    for value, tensor in zip([*graph.graph.inputs, *graph.graph.outputs], [*info.inputs, *info.outputs], strict=True):
        assert value.name == tensor.name and value.shape is not None, (value, tensor)
        found = [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
        for dim, expected in zip(found, tensor.dims, strict=True):
            if isinstance(dim, int) != isinstance(expected, int) or (isinstance(dim, int) and dim != expected):
                raise ValueError(
                    f"{info.file} declares {value.name} as {found}, it should be {list(tensor.dims)}: "
                    "the capture froze or lost a dimension"
                )
        value.shape = ir.Shape(tensor.dims)


def _strip(graph: ir.Model) -> None:
    """Removes what tells of this machine (stack traces, paths) and of nothing else."""
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
    """Mutes the exporters' progress notes, which concern nobody who exports a bundle."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
