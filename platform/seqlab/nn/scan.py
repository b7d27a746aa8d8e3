"""A recurrence over time, one step after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan

from seqlab.nn.onnx_mode import emitting

Carry = tuple[Tensor, ...]
Step = Callable[[Carry, tuple[Tensor, ...]], tuple[Carry, Tensor]]


def scan_over_time(step: Step, carry: Carry, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Carry]:
    """Runs `step` over dimension 1 of the inputs: a loop here, one `Scan` node in ONNX, of any length.

    Args:
        step: the carry and the inputs of one step, (B, ...) each, to the next carry and the output (B, ...).
        carry: batch first.
        inputs: (B, T, ...) each, T at least 1.

    Returns:
        the outputs (B, T, ...) and the last carry.
    """
    if emitting():
        # Scan wants outputs that are no inputs and lie as the inputs do, and time first.
        def cloned(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
            carry, output = step(carry, now)
            return tuple(entry.clone(memory_format=torch.contiguous_format) for entry in carry), output.clone()

        last, outputs = scan(cloned, carry, tuple(x.transpose(0, 1) for x in inputs))
        return outputs.transpose(0, 1), last
    collected = []
    # Indexed one by one, each step's gradient would be as long as the sequence.
    for now in zip(*(x.unbind(1) for x in inputs), strict=True):
        carry, output = step(carry, now)
        collected.append(output)
    return torch.stack(collected, dim=1), carry
