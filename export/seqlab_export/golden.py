"""The golden file: inputs, what a float64 copy of the model makes of them, and how far PyTorch itself is from that.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab_export.compare import error, rms, select
from seqlab_export.graphs import SequenceForm, StepForm
from seqlab_export.greedy import trace
from seqlab_export.manifest import GraphInfo, TensorInfo

BATCH_SIZES = (1, 2, 5)
PROMPT_LENGTHS = (1, 4)
NEW_TOKENS = 12
_SEED = 20


def write_golden(model: DecoderLM, info: GraphInfo, traced_len: int, path: Path) -> None:
    """Writes, as .npz:

    - `CELL/tokens` and `CELL/pad_mask` (B, T), for each batch size and length, padded and not;
    - `CELL/OUTPUT`, what `select` takes of the float64 model's output;
    - `CELL/OUTPUT/prefill` and `.../step`, the RMS error of this model in PyTorch, read at once and by the token;
    - `greedy/prompt_ROW`, `greedy/tokens` (R, N) and `greedy/logits` (R, N, V), greedy text of the float64 model.

    Args:
        model: in evaluation mode, on the CPU.
        info: the graph of whole sequences.
    """
    reference = deepcopy(model).double()
    generator = np.random.default_rng(_SEED)
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, pad_mask in _cells(traced_len, model.max_seq_len):
        tokens = generator.integers(model.vocab_size, size=pad_mask.shape, dtype=np.int64)
        arrays |= {f"{name}/tokens": tokens, f"{name}/pad_mask": pad_mask}
        expected = _outputs(SequenceForm(reference), tokens, pad_mask, info)
        at_once = _outputs(SequenceForm(model), tokens, pad_mask, info)
        by_token = _outputs(StepForm(model), tokens, pad_mask, info)
        for output, values in expected.items():
            arrays[f"{name}/{output}"] = values
            if np.issubdtype(values.dtype, np.floating):
                arrays[f"{name}/{output}/prefill"] = np.array(rms(error(at_once[output], values)))
                arrays[f"{name}/{output}/step"] = np.array(rms(error(by_token[output], values)))
    longest = model.max_seq_len or 2**30
    prompts = [
        generator.integers(model.vocab_size, size=min(length, longest), dtype=np.int64) for length in PROMPT_LENGTHS
    ]
    num_tokens = min(NEW_TOKENS, longest - max(map(len, prompts)) + 1)
    greedy = trace(TorchDecoder(reference), [prompt.tolist() for prompt in prompts], num_tokens)
    arrays |= {f"greedy/prompt_{row}": prompt for row, prompt in enumerate(prompts)}
    arrays |= {"greedy/tokens": greedy.tokens, "greedy/logits": greedy.logits}
    np.savez(path, allow_pickle=False, **arrays)


def _cells(traced_len: int, max_seq_len: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Names and pad masks (B, T): every batch size with every length that the model can read, padded and not."""
    for length in sorted({1, 2, traced_len, traced_len + 1, 4 * traced_len}):
        if max_seq_len is not None and length > max_seq_len:
            continue
        for batch_size in BATCH_SIZES:
            name = f"batch {batch_size}, length {length}"
            yield name, np.ones((batch_size, length), dtype=np.bool_)
            if length > 1:
                half = length // 2
                rows = [(half, length), (0, half), (0, 0), (length - 1, length), (0, length)]
                place = np.arange(length)
                yield (
                    f"{name}, padded",
                    np.array([(first <= place) & (place < end) for first, end in rows[:batch_size]]),
                )


@torch.no_grad()
def _outputs(
    form: SequenceForm | StepForm, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], info: GraphInfo
) -> dict[str, NDArray[np.generic]]:
    """What counts of each output, by its name in the graph."""
    width = 1 if isinstance(form, StepForm) else tokens.shape[1]
    state = form.model.init_state(len(tokens))
    logits: list[Tensor] = []
    for start in range(0, tokens.shape[1], width):
        part = slice(start, start + width)
        some, state = form(torch.from_numpy(tokens[:, part]), torch.from_numpy(pad_mask[:, part]), state)
        logits.append(some)
    found = [torch.cat(logits, dim=1), *state.values()]
    return {output.name: _select(tensor, output, pad_mask) for output, tensor in zip(info.outputs, found, strict=True)}


def _select(tensor: Tensor, info: TensorInfo, pad_mask: NDArray[np.bool_]) -> NDArray[np.generic]:
    return select(tensor.numpy(), info, pad_mask)
