"""Comparison of a bundle's debug graph with the model's intermediate outputs in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab_export.capture.graph_forms import longest_input, num_tokens
from seqlab_export.capture.intermediate_form import IntermediateForm
from seqlab_export.capture.plan import ExportPlan
from seqlab_export.proof.rounding import TermByTerm, draws_of
from seqlab_export.runner.cases import limit, relative_errors, rms, select, traced_len
from seqlab_export.runner.prove import judged
from seqlab_export.runner.report import Check

_SEED = 20


def check_intermediate(plan: ExportPlan, folder: Path) -> Iterator[Check]:
    """One check for each output of the debug graph and length: the runtime's error against float64 is within the budget
    of `cases.limit`."""
    form, info, precision = plan.forms["taps"], plan.infos["taps"], plan.precision
    assert isinstance(form, IntermediateForm)
    reference = IntermediateForm(plan.model, form.kinds).double()
    session = plan.provider.open(folder / info.file)
    names = [output.name for output in info.outputs]
    generator = np.random.default_rng(_SEED)
    for length in (1, 2, 4 * traced_len(_longest(plan.model))):
        inputs = _draw(form, length, generator)
        expected = _read(reference, inputs)
        modes: list[Any] = [nullcontext(), *map(TermByTerm, range(draws_of(inputs["pad_mask"].size)))]
        own = [_read(form, inputs, mode) for mode in modes]
        found = dict(zip(names, session.run(names, inputs), strict=True))
        for output in info.outputs:
            mask = inputs["source_mask" if "M" in output.dims and "T" not in output.dims else "pad_mask"]
            theirs, ours, *torchs = ({"": select(some[output.name], output, mask)} for some in (expected, found, *own))
            torch_error = max(rms(relative_errors(some, theirs, [""])) for some in torchs)
            errors, subject = relative_errors(ours, theirs, [""]), f"length {length}, {output.name}"
            yield judged("taps", subject, errors, torch_error, limit(torch_error, precision))


def _longest(model: Any) -> int | None:
    """Maximum length of a model's inputs, the same for source and text; None = unlimited."""
    lengths = [length for length in (model.max_seq_len, longest_input(model)) if length is not None]
    return min(lengths, default=None)


def _draw(form: IntermediateForm, length: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Inputs by name: rows without padding, and rows with padding before and after."""
    place, half = np.arange(length), length // 2
    mask = np.array([(first <= place) & (place < end) for first, end in ((0, length), (half, length), (0, half))])
    inputs: dict[str, NDArray[Any]] = {}
    for tensor in form.inputs:
        if tensor.dtype == "bool":
            inputs[tensor.name] = mask
        elif tensor.dtype == "int64":
            known = form.model.vocab_size if tensor.name == "tokens" and form.decodes else num_tokens(form.model)
            inputs[tensor.name] = generator.integers(known, size=mask.shape)
        else:
            inputs[tensor.name] = generator.standard_normal((*mask.shape, int(tensor.dims[2]))).astype(tensor.dtype)
    return inputs


@torch.no_grad()
def _read(form: IntermediateForm, inputs: dict[str, NDArray[Any]], mode: Any = None) -> dict[str, NDArray[Any]]:
    dtype = next(form.model.parameters()).dtype
    given = (torch.from_numpy(array) for array in inputs.values())
    with mode or nullcontext():
        found = form(*(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in given))
    return {name: entry.numpy() for name, entry in found.items()}
