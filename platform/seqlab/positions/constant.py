"""Float64 constants of a module, and the angles that they make.

B batch, T length, W channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn


class ConstantTensor(nn.Module):
    """Numbers in float64, in no checkpoint, that follow the model's device but not its dtype.

    A tensor, since an exporter may round Python numbers to float32, and kept, since making one on a GPU copies
    from the host and waits.
    """

    value: Tensor

    def __init__(self, numbers: Sequence[float]) -> None:
        super().__init__()
        self.numbers = list(numbers)
        self.register_buffer("value", torch.tensor(self.numbers, dtype=torch.float64), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.value = torch.tensor(self.numbers, dtype=torch.float64, device=self.value.device)
        return self


class Angles(nn.Module):
    """p * frequency modulo 2 pi.

    The product is taken in float64: in float32 an angle at position 10,000 is off by 1e-3.

    Args:
        frequencies: W/2 of them, in radians a token.
    """

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        self.frequency = ConstantTensor(frequencies)
        self.turn = ConstantTensor([2.0 * math.pi])

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Positions (B, T) to (B, T, W/2) radians of at least float32's precision."""
        angle = torch.remainder(positions.unsqueeze(-1) * self.frequency.value, self.turn.value)
        return angle.to(torch.promote_types(dtype, torch.float32))


def geometric(base: float, width: int) -> list[float]:
    """base^(-2i/width), i = 0..width/2 - 1 (Vaswani et al. 2017, section 3.5)."""
    return [base ** (-2.0 * i / width) for i in range(width // 2)]
