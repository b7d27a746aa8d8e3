"""Outputs of a model's forms in PyTorch, reduced to the values that verification compares.

T length, F features, R rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.decoding.generate import padded_left
from seqlab.mixer import State
from seqlab_export.capture.graph_forms import SequenceForm, StepForm
from seqlab_export.runner.cases import (
    ROWS,
    Arrays,
    calls,
    numbers_of,
    numbers_of_call,
    select,
    select_call,
    select_calls,
    select_outputs,
    spread,
)
from seqlab_export.runner.manifest import GraphInfo

Mode = AbstractContextManager[Any]
"""Context manager under which PyTorch computes."""


def cast(inputs: NDArray[np.generic], model: torch.nn.Module) -> Tensor:
    """Inputs as a tensor: features in the model's precision, or tokens."""
    tensor = torch.from_numpy(inputs)
    return tensor.to(next(model.parameters()).dtype) if tensor.is_floating_point() else tensor


@torch.no_grad()
def encoded(
    form: Any, inputs: NDArray[np.generic], pad_mask: NDArray[np.bool_], info: GraphInfo, mode: Mode, copies: int = 1
) -> list[Arrays]:
    """The compared values of each encoder output, by its name in the graph, for each of several copies of the inputs,
    read together under a mode that draws errors."""
    given = np.tile(inputs, (copies, *[1] * (inputs.ndim - 1))), np.tile(pad_mask, (copies, 1))
    batches = []
    for first in range(0, len(given[0]), ROWS * copies):
        rows = slice(first, first + ROWS * copies)
        with mode:
            found = form(cast(given[0][rows], form.model), torch.from_numpy(given[1][rows]))
        batches.append(list(found.values()) if isinstance(found, dict) else [found])
    return _of_copies([torch.cat(parts) for parts in zip(*batches, strict=True)], info, pad_mask, copies)


@torch.no_grad()
def outputs(
    form: SequenceForm | StepForm,
    tokens: NDArray[np.int64],
    pad_mask: NDArray[np.bool_],
    info: GraphInfo,
    state: State,
    mode: Mode,
    copies: int = 1,
) -> list[Arrays]:
    """The compared values of a decoder that starts from a state, for each of several copies of the rows, read in one
    batch under a mode that draws errors. A step form reads one token per call."""
    model = form.model
    given = np.tile(tokens, (copies, 1)), np.tile(pad_mask, (copies, 1))
    start = {name: torch.cat([entry] * copies) for name, entry in state.items()}
    logits: list[Tensor] = []
    new: State = {}
    with mode:
        for piece in calls("step" if isinstance(form, StepForm) else "prefill", pad_mask, model.first_call):
            read = form if piece.stop - piece.start == 1 else SequenceForm(model)
            some, new = read(*(torch.from_numpy(array[:, piece]) for array in given), start | new)
            logits.append(some)
    return _of_copies([torch.cat(logits, dim=1), *new.values()], info, pad_mask, copies)


@torch.no_grad()
def long_outputs(
    forms: Mapping[str, Any],
    tokens: NDArray[np.int64],
    pad_mask: NDArray[np.bool_],
    info: GraphInfo,
    state: State,
    mode: Mode,
    form: str = "long",
) -> Arrays:
    """The compared values of a decoder for a long text, read in the calls of a form."""
    first_call = forms["model"].model.first_call
    new: State = {}

    def read() -> Iterator[Tensor]:
        nonlocal new
        for piece in calls(form, pad_mask, first_call):
            graph = forms["step" if piece.stop - piece.start == 1 else "model"]
            some, new = graph(torch.from_numpy(tokens[:, piece]), torch.from_numpy(pad_mask[:, piece]), state | new)
            yield some

    with mode:
        logits = torch.cat([*read()], dim=1)
    pieces = calls("long", pad_mask, first_call)
    chosen = select_calls((logits[:, piece].numpy() for piece in pieces), pieces, info, pad_mask)
    return {"logits": chosen, **_selected(new.values(), replace(info, outputs=info.outputs[1:]), pad_mask)}


@torch.no_grad()
def in_one_call(
    forms: Mapping[str, Any],
    tokens: NDArray[np.int64],
    info: GraphInfo,
    state: State,
    lengths: Sequence[int],
    mode: Mode,
    form: str = "prefill",
) -> list[Arrays]:
    """The values that `select_call` takes at each length of a text, tokens (1, T), read in one call ("prefill") or
    token by token ("step").
    """
    pad_mask = np.ones(tokens.shape, dtype=np.bool_)
    parts: list[Tensor] = []
    new: State = {}
    with mode:
        for piece in calls(form, pad_mask, forms["model"].model.first_call):
            graph = forms["step" if form == "step" and piece.stop - piece.start == 1 else "model"]
            some, new = graph(torch.from_numpy(tokens[:, piece]), torch.from_numpy(pad_mask[:, piece]), state | new)
            parts.append(some)
    logits, most = torch.cat(parts, dim=1).numpy(), numbers_of_call(len(lengths))
    texts = [(logits[:, :length], logits[:, length : length + 1]) for length in lengths]
    return [{"logits": select_call(text, spread(text.size, most), following, most)} for text, following in texts]


@torch.no_grad()
def logits_after(
    forms: Mapping[str, Any],
    prompts: Sequence[NDArray[np.int64]],
    written: NDArray[np.int64],
    state: State,
    mode: Mode,
) -> NDArray[np.floating]:
    """Logits (R, N, V) from which the tokens written (R, N) were chosen after the prompts of a batch. Those after the
    first are read in one call, or token by token if the first call reads a prefix."""
    tokens, pad_mask = map(torch.from_numpy, padded_left([prompt.tolist() for prompt in prompts], [*map(len, prompts)]))
    read, width = torch.from_numpy(written[:, :-1]), 1 if forms["model"].model.first_call > 1 else written.shape[1]
    with mode:
        logits, new = forms["model"](tokens, pad_mask, state, torch.tensor([tokens.shape[1] - 1]))
        parts = [logits]
        for first in range(0, read.shape[1], width):
            piece = read[:, first : first + width]
            graph = forms["step" if piece.shape[1] == 1 else "model"]
            logits, new = graph(piece, torch.ones_like(piece, dtype=torch.bool), state | new)
            parts.append(logits)
    return torch.cat(parts, dim=1).numpy()


@torch.no_grad()
def encoded_in_one_call(
    form: Any, inputs: NDArray[np.generic], info: GraphInfo, lengths: Sequence[int], mode: Mode
) -> list[Arrays]:
    """The values that `select_outputs` takes from an encoder for prefixes of one input, by length."""
    texts = []
    for length in lengths:
        pad_mask = np.ones((1, length), dtype=np.bool_)
        with mode:
            found = form(cast(inputs[:, :length], form.model), torch.from_numpy(pad_mask))
        tensors = found.values() if isinstance(found, dict) else [found]
        named = {output.name: tensor.numpy() for output, tensor in zip(info.outputs, tensors, strict=True)}
        texts.append(select_outputs(named, info, pad_mask, len(lengths)))
    return texts


def _of_copies(tensors: Iterable[Tensor], info: GraphInfo, pad_mask: NDArray[np.bool_], copies: int) -> list[Arrays]:
    parts = zip(*(tensor.chunk(copies) for tensor in tensors), strict=True)
    return [_selected(each, info, pad_mask) for each in parts]


def _selected(tensors: Iterable[Tensor], info: GraphInfo, pad_mask: NDArray[np.bool_]) -> Arrays:
    return {
        output.name: select(tensor.numpy(), output, pad_mask, numbers_of(output, info))
        for output, tensor in zip(info.outputs, tensors, strict=True)
    }
