"""Sequential recurrence over time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqlab.nn.operation import operation

Carry = tuple[Tensor, ...]
Step = Callable[[Carry, tuple[Tensor, ...]], tuple[Carry, Tensor]]


@operation
def scan_over_time(step: Step, carry: Carry, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Carry]:
    """Runs `step` over dimension 1 of the inputs: a loop of any length that an exporter can write as one node.

    Args:
        step: maps the carry and the inputs of one step, (B, ...) each, to the next carry and the output (B, ...).
        carry: initial carry, batch first.
        inputs: tensors (B, T, ...), T at least 1.

    Returns:
        the outputs (B, T, ...) and the final carry.
    """
    outputs, carry = _loop(step, carry, inputs)
    return outputs, carry


# Unrolled, a loop takes minutes to compile, and each length again; so `torch.compile` compiles the step alone.
@torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call, untyped-decorator]
def _loop(step: Step, carry: Carry, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Carry]:
    collected = []
    # With indexing instead of `unbind`, each step's gradient would be as long as the sequence.
    for now in zip(*(x.unbind(1) for x in inputs), strict=True):
        carry, output = step(carry, now)
        collected.append(output)
    return torch.stack(collected, dim=1), carry
