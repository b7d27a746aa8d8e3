"""The debug graph of a bundle, which has the model's inputs and returns intermediate outputs.

B batch, T query length, S key length, M source length, H heads, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from seqlab.mixer import Mixer, fix_capacity
from seqlab.nn.block import Block
from seqlab.probes.attention_weights import recorded_weights
from seqlab_export.capture.graph_forms import example, forms_of
from seqlab_export.capture.precision import copy_sharing_weights
from seqlab_export.runner.manifest import GraphInfo, TensorInfo

IntermediateOutput = Literal["attention", "state"]
"""attention: the attention weights (B, H, T, S) of each mixer that has them. state: the hidden states (B, T, D) after
each block, and after each mixer outside blocks. Outputs are named `<attention|state>.<the module's name in the model>`.
"""

FILE_NAME = "taps.onnx"


class IntermediateForm(nn.Module):
    """A model that reads whole sequences from their start and returns intermediate outputs.

    Raises:
        ValueError: a kind of output is unknown, or the model has none of it.
    """

    def __init__(self, model: Any, kinds: Sequence[IntermediateOutput]) -> None:
        super().__init__()
        self.model, self.kinds = copy_sharing_weights(model), kinds
        fix_capacity(self.model, None)  # each text is read from its start, without a cache
        for kind in kinds:
            if kind not in get_args(IntermediateOutput):
                raise ValueError(f"a tap is one of {', '.join(get_args(IntermediateOutput))}, got {kind!r}")
        forms = forms_of(self.model)
        begin: Any = forms.get("encoder")
        self.decodes = "model" in forms
        self.inputs: list[TensorInfo] = [*begin.info().inputs] if begin is not None else []
        if self.decodes:
            self.inputs += [tensor for tensor in forms["model"].info().inputs if tensor.name in ("tokens", "pad_mask")]
        found = self._sizes(2, 2)
        for kind in kinds:
            if not any(name.startswith(f"{kind}.") for name in found):
                raise ValueError(f"tap {kind} finds nothing in this model, a {type(model).__name__}; leave it out")

    def forward(
        self, given: Tensor, mask: Tensor, tokens: Tensor | None = None, pad_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Intermediate outputs by name. The inputs are those of `info`: tokens or features and their mask, or a source
        and its mask followed by tokens and their mask."""
        with recorded_weights(self.model) as attention, recorded_states(self.model) as state:
            if tokens is None:
                self.model(given, pad_mask=mask)
            else:
                self.model(tokens, self.model.begin(given, mask), pad_mask=pad_mask)
        found = {"attention": attention, "state": state}
        return {f"{kind}.{name}": entry for kind in self.kinds for name, entry in found[kind].items()}

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


def intermediate_outputs_of(model: Any) -> list[IntermediateOutput]:
    """The kinds of intermediate outputs that a model has."""
    found = []
    for kind in get_args(IntermediateOutput):
        with suppress(ValueError):
            IntermediateForm(model, [kind])
            found.append(kind)
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
