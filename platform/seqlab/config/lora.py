"""Options of `--lora`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Lora:
    """Trained updates of low rank to frozen weights; `seqlab.nn.lora` has the equation.

    Args:
        rank: rank of each update, at least 1.
        alpha: the updates are scaled by alpha / rank; above 0; None = rank.
        targets: regular expression that the name of a linear layer's weight in the model matches anywhere if it is
            updated; the default matches those in blocks.

    Raises:
        ValueError: an option is out of range, or targets is not a regular expression.
    """

    rank: int = 8
    alpha: float | None = None
    targets: str = r"blocks\."

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"--lora.rank must be at least 1, got {self.rank}")
        if not 0 < self.scale < math.inf:
            raise ValueError(f"--lora.alpha must be above 0, got {self.alpha}")
        try:
            re.compile(self.targets)
        except re.error as error:
            raise ValueError(f"--lora.targets {self.targets} is not a regular expression: {error}") from None

    @property
    def scale(self) -> float:
        """Factor alpha / rank."""
        return 1.0 if self.alpha is None else self.alpha / self.rank
