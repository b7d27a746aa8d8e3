"""The golden file: inputs, what a float64 copy of the model makes of them, and how far PyTorch itself is from that.

T length, R rows, N new tokens, V vocabulary.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab_export.compare import Arrays, calls, cases, groups, relative_errors, rms, select
from seqlab_export.graphs import SequenceForm, StepForm
from seqlab_export.greedy import trace
from seqlab_export.manifest import GraphInfo

PROMPT_LENGTHS = (1, 4)
NEW_TOKENS = 12
_SEED = 20
_SAME = 1e-9
_ORDERS = 4


def write_golden(model: DecoderLM, info: GraphInfo, traced_len: int, path: Path) -> None:
    """Writes, as .npz:

    - `CASE/tokens` (R, T), for each of `compare.cases`;
    - `CASE/OUTPUT`, what `compare.select` takes of each output of the float64 model;
    - `CASE/torch/GROUP`, the relative RMS error of this model in PyTorch for each of `compare.groups`: the largest of
      that of all tokens at once, of one by one, and of all at once with channels summed in a few other orders, which
      tells how far rounding alone leads;
    - `greedy/prompt_ROW`, `greedy/tokens` (R, N) and `greedy/logits` (R, N, V), greedy text of the float64 model.

    Args:
        model: in evaluation mode, on the CPU.
        info: the graph of whole sequences.

    Raises:
        ValueError: the model's `step` does not compute what its `forward` does.
    """
    step_reference = deepcopy(StepForm(model)).double()
    reference = step_reference.model
    forms: list[tuple[SequenceForm | StepForm, int | None]]
    forms = [(StepForm(model), None), *((SequenceForm(model), order) for order in (None, *range(_ORDERS)))]
    generator = np.random.default_rng(_SEED)
    arrays: dict[str, NDArray[np.generic]] = {}
    for case, pad_mask in cases(traced_len, model.max_seq_len):
        tokens = generator.integers(model.vocab_size, size=pad_mask.shape, dtype=np.int64)
        expected = _outputs(SequenceForm(reference), tokens, pad_mask, info)
        _check_step(_outputs(step_reference, tokens, pad_mask, info), expected, case)
        arrays[f"{case}/tokens"] = tokens
        arrays |= {f"{case}/{name}": values for name, values in expected.items()}
        found = []
        for form, order in forms:
            with nullcontext() if order is None else OtherOrder(order):
                found.append(_outputs(form, tokens, pad_mask, info))
        for group, outputs in groups(info).items():
            own = max(rms(relative_errors(actual, expected, outputs)) for actual in found)
            arrays[f"{case}/torch/{group}"] = np.array(own)
    longest = model.max_seq_len or 2**30
    prompts = [
        generator.integers(model.vocab_size, size=min(length, longest), dtype=np.int64) for length in PROMPT_LENGTHS
    ]
    num_tokens = min(NEW_TOKENS, longest - max(map(len, prompts)) + 1)
    greedy = trace(TorchDecoder(reference), [prompt.tolist() for prompt in prompts], num_tokens)
    arrays |= {f"greedy/prompt_{row}": prompt for row, prompt in enumerate(prompts)}
    arrays |= {"greedy/tokens": greedy.tokens, "greedy/logits": greedy.logits}
    np.savez(path, allow_pickle=False, **arrays)


class OtherOrder(TorchFunctionMode):
    """Linear layers and layer norms that sum over their channels in a random order, as another library might."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (F.linear, F.layer_norm):
            return func(*args, **kwargs)
        order = torch.randperm(args[0].shape[-1], generator=self.generator)
        if func is F.linear:
            x, weight, *bias = args
            return func(x[..., order], weight[:, order], *bias, **kwargs)
        args = [value[..., order] if isinstance(value, Tensor) else value for value in args]
        kwargs = {name: value[order] if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        return func(*args, **kwargs)[..., order.argsort()]


def _check_step(stepped: Arrays, expected: Arrays, case: str) -> None:
    """In float64, where rounding cannot excuse it: a budget that follows PyTorch's own error would."""
    found = rms(relative_errors(stepped, expected, ["logits"]))
    if not found <= _SAME:
        raise ValueError(f"this model's step and forward differ by {found:.1e} in float64 ({case}); they must agree")


@torch.no_grad()
def _outputs(
    form: SequenceForm | StepForm, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], info: GraphInfo
) -> Arrays:
    """What counts of each output, by its name in the graph."""
    model = form.model
    state = model.init_state(len(tokens))
    logits: list[Tensor] = []
    for piece in calls("step" if isinstance(form, StepForm) else "prefill", pad_mask, model.first_call):
        read = form if piece.stop - piece.start == 1 else SequenceForm(model)
        some, state = read(torch.from_numpy(tokens[:, piece]), torch.from_numpy(pad_mask[:, piece]), state)
        logits.append(some)
    found = [torch.cat(logits, dim=1), *state.values()]
    return {
        output.name: select(tensor.numpy(), output, pad_mask)
        for output, tensor in zip(info.outputs, found, strict=True)
    }
