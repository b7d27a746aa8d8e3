"""Activation memory: tensors that autograd saves in a forward pass, counted without allocating them.

T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from warnings import catch_warnings

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from seqlab.nn import Block
from seqlab.nn.mixture_of_experts import numbers
from seqlab.nn.operation import lowered
from seqlab.tasks.large_vocabulary import AT_ONCE

LOGIT = 12
"""Bytes per logit, in float32: the logit, its log-probability and its gradient."""


class Kept(NamedTuple):
    """Saved bytes independent of the batch size, i.e. weights cast to bfloat16, and saved bytes per sequence."""

    fixed: int
    each: int


class Activations(NamedTuple):
    """Attributes:
    kept: bytes saved by a training step.
    forgotten: the same with `--checkpoint_activations`: the inputs of all blocks, and the intermediate outputs of
        the largest block.
    num_logits: number of logits per sequence, T V.
    """

    kept: Kept
    forgotten: Kept
    num_logits: int

    def largest_batch(self, room: float, *, forget: bool) -> int:
        """Largest batch that fits into `room` bytes. A large number of logits is computed in chunks."""
        fixed, each = self.forgotten if forget else self.kept
        few = min((room - fixed) // (each + LOGIT * self.num_logits), AT_ONCE // self.num_logits)
        return max(0, int(few), int((room - fixed - LOGIT * AT_ONCE) // each))


def activations(make: Callable[[], Any], seq_len: int) -> Activations:
    """Activation memory of a token model in bfloat16 mixed precision, each mixer in its plain form. Temporary memory of
    the backward pass is not counted.

    Args:
        make: builds the model.

    Raises:
        ValueError: the model has no vocabulary, or does not run with fake tensors.
    """
    saved: dict[Any, tuple[int, int]] = {}
    with FakeTensorMode():
        model = make().train()
        if not hasattr(model, "vocab_size"):
            raise ValueError(f"the activations of {type(model).__name__} are unknown: it has no vocabulary")
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        for block in blocks:
            if _kind(block) not in saved:
                saved[_kind(block)] = _saved(block, 1, seq_len), _saved(block, 2, seq_len)
    kept = [Kept(2 * one - two, two - one) for one, two in (saved[_kind(block)] for block in blocks)]
    fixed, each = zip(*kept, strict=True)
    entering = [4 * seq_len * block.mixer.d_model for block in blocks]
    outside = 2 * entering[-1]  # output of the last block and of the final norm
    forgotten = Kept(max(fixed), sum(entering) + max(each) + outside)
    return Activations(Kept(sum(fixed), sum(each) + outside), forgotten, seq_len * model.vocab_size)


def _kind(block: Block) -> tuple[str, Any]:
    """Key of a block; blocks with the same key save the same amount."""
    return repr(block), block.mixer.state_spec() if block.mixer.causal else None


def _saved(block: Block, batch: int, seq_len: int) -> int:
    """Bytes that a block saves for the backward pass, including its input."""
    own = {weight.untyped_storage()._cdata for weight in (*block.parameters(), *block.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return saved

    x = torch.empty(batch, seq_len, block.mixer.d_model, requires_grad=True)
    plain, half = torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16)
    even = lowered({numbers: _evenly})
    with catch_warnings(action="ignore"), plain, half, even, saved_tensors_hooks(keep, lambda saved: saved):
        try:
            block(x)
        except (NotImplementedError, RuntimeError) as error:
            name = type(block.mixer).__name__
            raise ValueError(
                f"the activations of {name} are unknown: it cannot run on tensors without memory"
            ) from error
    return sum(storage.nbytes() for storage in kept.values())


def _evenly(load: Tensor, total: int) -> list[int]:
    """Loads of experts among which `total` tokens are divided evenly."""
    return [(total + place) // len(load) for place in range(len(load))]
