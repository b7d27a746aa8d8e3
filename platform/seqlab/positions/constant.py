"""Float64 constants of a module, and rotation angles computed from them.

B batch, T length, W channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn


class ConstantTensor(nn.Module):
    """Float64 constants that follow the model's device but not its dtype, and are not saved in checkpoints.

    They are a tensor, since an exporter may round Python numbers to float32, and are kept, since creating a tensor on a
    GPU requires a synchronising copy from the host.
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

    The product is computed in float64: in float32 an angle at position 10,000 is off by 1e-3.

    Args:
        frequencies: W/2 frequencies in radians per token.
    """

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        self.frequency = ConstantTensor(frequencies)
        self.turn = ConstantTensor([2.0 * math.pi])

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Angles (B, T, W/2) in radians at positions (B, T), in at least float32."""
        angle = torch.remainder(positions.unsqueeze(-1) * self.frequency.value, self.turn.value)  # (..., W/2)
        return angle.to(torch.promote_types(dtype, torch.float32))


def geometric(base: float, width: int) -> list[float]:
    """base^(-2i/width), i = 0..width/2 - 1 (Vaswani et al. 2017, section 3.5)."""
    return [base ** (-2.0 * i / width) for i in range(width // 2)]
