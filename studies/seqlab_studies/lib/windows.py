"""Windows of a text that a model was validated on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WINDOWS = 96


def validation(data: Any) -> tuple[Tensor, Tensor]:
    """Tokens and targets (WINDOWS, T)."""
    data.setup("validate")
    batches = [batch for batch, _ in zip(data.val_dataloader(), range(WINDOWS), strict=False)]
    return tuple(torch.cat([getattr(batch, part) for batch in batches])[:WINDOWS] for part in ("tokens", "targets"))  # type: ignore[return-value]
