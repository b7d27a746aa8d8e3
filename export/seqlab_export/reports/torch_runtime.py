"""PyTorch as a runtime to be verified: the forms of a model, eager or compiled.

B batch, T new tokens, V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from copy import copy
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch._dynamo import config as dynamo_config
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch.utils._pytree import tree_map

from seqlab.mixer import State, fix_capacity
from seqlab_export.capture.graph_forms import forms_of
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.capture.to_onnx import capture
from seqlab_export.runner.graph_runner import ArrayDecoder
from seqlab_export.runner.graph_runner import State as ArrayState
from seqlab_export.runner.manifest import GraphInfo

Compiled = Literal["jit", "ahead"]


class TorchRuntime(ArrayDecoder):
    """PyTorch as a `prove.Runtime`, eager or compiled.

    Args:
        model: model in evaluation mode; it is copied.
        precision: fp32, fp16 or bf16.
        capacity: capacity of the caches in tokens; None = growing caches.
        compiled: "jit" = `torch.compile` with dynamic lengths, raising an error instead of falling back to eager mode;
            "ahead" = AOTInductor, run by its C++ loader; None = eager.

    Raises:
        ValueError: AOTInductor cannot compile the model.
    """

    def __init__(
        self,
        model: Any,
        precision: Precision = "fp32",
        *,
        capacity: int | None = None,
        compiled: Compiled | None = None,
    ) -> None:
        self.model = in_dtype(model, precision)
        fix_capacity(self.model, capacity)
        forms: dict[str, Any] = forms_of(self.model)
        self.settings = dynamo_config.patch(recompile_limit=64, fail_on_recompile_limit_hit=True)
        self.infos = {name: form.info() for name, form in forms.items()}
        self.forms = {name: self._compiled(form, self.infos[name], compiled) for name, form in forms.items()}
        self.vocab_size, self.max_seq_len = getattr(self.model, "vocab_size", 0), self.model.max_seq_len
        self._first: ArrayState | None = None

    @staticmethod
    def _compiled(form: Any, info: GraphInfo, compiled: Compiled | None) -> Callable[..., Any]:
        if compiled == "ahead":
            # Its warnings concern third-party code; on a failed capture it prints the whole graph.
            with TemporaryDirectory() as folder, warnings.catch_warnings(), redirect_stderr(StringIO()):
                warnings.simplefilter("ignore")
                package = aoti_compile_and_package(capture(form, info), package_path=f"{folder}/form.pt2")
                loaded: Callable[..., Any] = aoti_load_package(package)
            # The compiled code assumes the strides seen at compile time, without checking them.
            return lambda *given: loaded(*tree_map(torch.Tensor.contiguous, given))
        compiled_form: Callable[..., Any] = torch.compile(form, dynamic=True) if compiled == "jit" else form
        return compiled_form

    @torch.no_grad()
    def encode(self, inputs: NDArray[np.generic], pad_mask: NDArray[np.bool_]) -> ArrayState:
        info = self.infos["encoder"]
        given = torch.from_numpy(inputs.astype(info.inputs[0].dtype))
        with self.settings:
            found = self.forms["encoder"](given, torch.from_numpy(pad_mask))
        outputs = found.values() if isinstance(found, dict) else [found]
        return {output.name: tensor.numpy() for output, tensor in zip(info.outputs, outputs, strict=True)}

    def begin(self, source: NDArray[np.generic], source_mask: NDArray[np.bool_]) -> TorchRuntime:
        started = copy(self)
        started._first = self.encode(source, source_mask)
        return started

    def init_state(self, batch_size: int) -> ArrayState:
        if self._first is not None:
            return self._first
        return to_arrays(self.model.init_state(batch_size))

    @torch.no_grad()
    def run(
        self, graph: Literal["model", "step"], given: ArrayState, state: ArrayState
    ) -> tuple[NDArray[np.floating], ArrayState]:
        tokens, pad_mask, *scored = map(torch.from_numpy, given.values())
        with self.settings:
            logits, new = self.forms[graph](tokens, pad_mask, to_tensors(state), *scored)
        return logits.numpy(), state | to_arrays(new)


def to_arrays(state: State) -> ArrayState:
    """A state as arrays, by graph input name."""
    return {f"state_{name}": entry.numpy() for name, entry in state.items()}


def to_tensors(arrays: ArrayState) -> State:
    """Inverse of `to_arrays`."""
    return {name.removeprefix("state_"): torch.from_numpy(entry) for name, entry in arrays.items()}
