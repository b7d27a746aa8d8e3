"""The debug graph of a bundle, which has the model's inputs and returns intermediate outputs.

B batch, T query length, S key length, M source length, H heads, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqlab.mixer import Mixer, fix_capacity
from seqlab.nn.block import Block
from seqlab.probes.attention_weights import recorded_weights
from seqlab_export.capture.graph_forms import example, forms_of, longest_input, num_tokens
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.proof.rounding import TermByTerm, draws_of
from seqlab_export.runner.cases import limit, relative_errors, rms, select, traced_len
from seqlab_export.runner.manifest import GraphInfo, TensorInfo
from seqlab_export.runner.prove import judged
from seqlab_export.runner.provider import ProviderName
from seqlab_export.runner.report import Check
from seqlab_export.runner.sessions import open_session

Tap = Literal["attention", "state"]
"""attention: the attention weights (B, H, T, S) of each mixer that has them. state: the hidden states (B, T, D) after
each block, and after each mixer outside blocks. Outputs are named `<tap>.<the module's name in the model>`."""

FILE_NAME = "taps.onnx"
_SEED = 20


class TapsForm(nn.Module):
    """A model that reads whole sequences from their start, with its taps as outputs.

    Raises:
        ValueError: a tap is unknown, or the model has no outputs for it.
    """

    def __init__(self, model: Any, taps: Sequence[Tap]) -> None:
        super().__init__()
        self.model, self.taps = deepcopy(model), taps
        fix_capacity(self.model, None)  # each text is read from its start, without a cache
        for tap in taps:
            if tap not in get_args(Tap):
                raise ValueError(f"a tap is one of {', '.join(get_args(Tap))}, got {tap!r}")
        forms = forms_of(self.model)
        begin: Any = forms.get("encoder")
        self.decodes = "model" in forms
        self.inputs: list[TensorInfo] = [*begin.info().inputs] if begin is not None else []
        if self.decodes:
            self.inputs += [tensor for tensor in forms["model"].info().inputs if tensor.name in ("tokens", "pad_mask")]
        found = self._sizes(2, 2)
        for tap in taps:
            if not any(name.startswith(f"{tap}.") for name in found):
                raise ValueError(f"tap {tap} finds nothing in this model, a {type(model).__name__}; leave it out")

    def forward(
        self, given: Tensor, mask: Tensor, tokens: Tensor | None = None, pad_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Taps by name, for the inputs of `info`: tokens or features and their mask, or a source and its mask followed
        by tokens and their mask."""
        with recorded_weights(self.model) as attention, recorded_states(self.model) as state:
            if tokens is None:
                self.model(given, pad_mask=mask)
            else:
                self.model(tokens, self.model.begin(given, mask), pad_mask=pad_mask)
        found = {"attention": attention, "state": state}
        return {f"{tap}.{name}": entry for tap in self.taps for name, entry in found[tap].items()}

    def info(self) -> GraphInfo:
        sizes = zip(self._sizes(2, 2).items(), self._sizes(3, 2).values(), self._sizes(2, 3).values(), strict=True)
        dtype = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        outputs = []
        for (name, shape), longer, of_longer_source in sizes:
            dims: list[str | int] = ["B"]
            for size, with_t, with_m in list(zip(shape, longer, of_longer_source, strict=True))[1:]:
                grows = "T" if with_t > size else "M" if with_m > size else ""
                dims.append(size if not grows else grows if size == 2 else f"{grows}+{size - 2}")
            outputs.append(TensorInfo(name=name, dtype=dtype, dims=tuple(dims)))
        return GraphInfo(file=FILE_NAME, inputs=tuple(self.inputs), outputs=tuple(outputs))

    @torch.no_grad()
    def _sizes(self, length: int, source_len: int) -> dict[str, torch.Size]:
        sizes = {"B": 2, "T": length, "M": source_len}
        given = [example(tensor, sizes) for tensor in self.inputs]
        found = self(*(~zeros if zeros.dtype == torch.bool else zeros for zeros in given))
        return {name: entry.shape for name, entry in found.items()}


def taps_of(model: Any) -> list[Tap]:
    """The taps for which a model has outputs."""
    found = []
    for tap in get_args(Tap):
        with suppress(ValueError):
            TapsForm(model, [tap])
            found.append(tap)
    return found


@contextmanager
def recorded_states(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While open, records the hidden states (B, T, D) after each block that reads a sequence, and after each mixer
    outside blocks, by module name."""
    found: dict[str, Tensor] = {}
    blocks = [name for name, module in model.named_modules() if isinstance(module, Block)]

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: tuple[Tensor, Any]) -> None:
            found[name] = output[0]

        return hook

    handles = [
        module.register_forward_hook(record(name))
        for name, module in model.named_modules()
        if name in blocks or (isinstance(module, Mixer) and not any(name.startswith(f"{block}.") for block in blocks))
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def check_taps(
    model: Any, taps: Sequence[Tap], bundle: Path, *, precision: Precision, provider: ProviderName
) -> Iterator[Check]:
    """One check for each output and length: the runtime's error against float64 is within the budget of
    `cases.limit`.

    Args:
        model: model in evaluation mode, on the CPU, in fp32.
        bundle: folder of the graph.
        precision: precision of the bundle.
    """
    form, reference = TapsForm(in_dtype(model, precision), taps), TapsForm(deepcopy(model), taps).double()
    info, session = form.info(), open_session(bundle / FILE_NAME, provider)
    names = [output.name for output in info.outputs]
    generator = np.random.default_rng(_SEED)
    for length in (1, 2, 4 * traced_len(_longest(model))):
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


def _draw(form: TapsForm, length: int, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
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
def _read(form: TapsForm, inputs: dict[str, NDArray[Any]], mode: Any = None) -> dict[str, NDArray[Any]]:
    dtype = next(form.model.parameters()).dtype
    given = (torch.from_numpy(array) for array in inputs.values())
    with mode or nullcontext():
        found = form(*(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in given))
    return {name: entry.numpy() for name, entry in found.items()}
