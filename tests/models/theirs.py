"""Models of `transformers` with random weights, and their weights by our names. Nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

os.environ["HF_HUB_OFFLINE"] = "1"
transformers: Any = pytest.importorskip("transformers")

NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}


def randomly(model: nn.Module, dtype: torch.dtype = torch.float32) -> Any:
    """`model` with random weights, to be read and not trained."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.to(dtype).eval()


def renamed(model: nn.Module, names: Mapping[str, str]) -> dict[str, Tensor]:
    """The model's weights, of whose names each part in `names` is replaced."""
    weights = {}
    for name, weight in model.state_dict().items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        weights[name] = weight
    return weights


def ramp(y: Tensor, wrt: Tensor) -> Tensor:
    """The gradient of a sum of y with weights from -1 to 1."""
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return torch.autograd.grad((weights * y).sum(), wrt)[0]


def padded(length: int) -> Tensor:
    """(3, length) bool, of which one row has padding behind its 11 tokens."""
    return torch.arange(length) < torch.tensor([[length], [11], [length]])
