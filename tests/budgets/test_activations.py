"""The activations that are counted without memory are those that autograd keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from budgets.test_flops import Undone
from seqlab.attention import Attention
from seqlab.budgets.activations import Activations, Kept, activations
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, Mamba
from seqlab.tasks.large_vocabulary import AT_ONCE

LENGTH, D_MODEL = 24, 32


def model(layers: int, mixer: Any) -> DecoderLM:
    return DecoderLM(64, LENGTH, d_model=D_MODEL, num_layers=layers, mixer=mixer, positions=NoPositions)


def kept_by(model: DecoderLM, batch: int) -> int:
    """Bytes that autograd keeps of a forward pass, besides the weights."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage()
        return saved

    tokens = torch.zeros(batch, LENGTH, dtype=torch.int64)
    with saved_tensors_hooks(keep, lambda saved: saved), torch.autocast("cpu", torch.bfloat16):
        model(tokens, features=True)
    own = {weight.data_ptr() for weight in model.parameters()}
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


def test_what_autograd_keeps() -> None:
    """Within 3%: the embedding, and what leaves the last block, are by formula."""
    mixers = [GRU, Attention, Mamba]
    found = activations(lambda: model(3, mixers), LENGTH)
    assert found.kept.fixed + 16 * found.kept.each == pytest.approx(kept_by(model(3, mixers), 16), rel=0.03)


def test_what_is_kept_to_compute_again() -> None:
    """Activations of one block, once, and the inputs of each block and of the last norm, in float32."""
    one, four = activations(lambda: model(1, Attention), LENGTH), activations(lambda: model(4, Attention), LENGTH)
    block = (four.kept.each - one.kept.each) // 3
    assert four.forgotten.each == block + (4 * D_MODEL * LENGTH) * (4 + 2)
    assert four.forgotten.fixed == one.kept.fixed == four.kept.fixed // 4 > 0


def test_what_is_not_known() -> None:
    with pytest.raises(ValueError, match="the activations of Undone are unknown: it does not run without memory"):
        activations(lambda: model(1, Undone), LENGTH)
    with pytest.raises(ValueError, match="the activations of Linear are unknown: it has no vocabulary"):
        activations(lambda: torch.nn.Linear(1, 1), LENGTH)


def test_the_largest_batch() -> None:
    """Logits never exceed the number that a task computes at once."""
    few = Activations(Kept(1000, 100), Kept(100, 10), 10)
    assert few.largest_batch(1000 + 220 * 7, forget=False) == 7
    assert few.largest_batch(100 + 130 * 7 - 1, forget=True) == 6
    assert few.largest_batch(0, forget=False) == 0
    many = Activations(Kept(0, 100), Kept(0, 10), AT_ONCE // 2)
    assert many.largest_batch(12 * AT_ONCE + 100 * 9, forget=False) == 9
    assert many.largest_batch(6 * AT_ONCE + 100, forget=False) == 1
    assert Activations(Kept(0, 100), Kept(0, 10), 2 * AT_ONCE).largest_batch(12 * AT_ONCE + 100, forget=False) == 1
