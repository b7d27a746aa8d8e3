"""Parameter counts of packaged presets, and widths that match the parameter counts of two layers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from seqlab.config.configs import build_task, read_config


def size_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def preset(name: str, vocab_size: int = 50_257, seq_len: int = 2048, **options: Any) -> Any:
    """The model of a packaged preset, without allocated memory.

    Args:
        options: model options that override the preset's.
    """
    stored = read_config(f"presets/{name}")
    stored["model"]["init_args"]["model"]["init_args"] |= options
    told = {"vocab_size": vocab_size, "seq_len": seq_len}
    with torch.device("meta"):
        return build_task(stored, told | ({"target_vocab_size": vocab_size} if "transformer" in name else {})).model


def matched(make: Callable[[int], nn.Module], to: int) -> int:
    """The width whose number of parameters is nearest to `to`."""
    sizes: dict[int, int] = {}
    with torch.device("meta"):
        low, high = 4, 4
        while not sizes or max(sizes.values()) < to:
            low, high = high, 2 * high
            for width in range(low, high + 1, max(1, low // 32)):
                with suppress(ValueError):  # the width is not divisible by the number of heads
                    sizes[width] = size_of(make(width))
    return min(sizes, key=lambda width: abs(sizes[width] - to))
