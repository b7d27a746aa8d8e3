"""LoRA: trained updates of low rank to frozen weights (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language
Models").

I inputs and O outputs of a linear layer, R rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqlab.config.lora import Lora


class LowRankLinear(nn.Linear):
    """A linear layer with the weight W + alpha / R B A (section 4.1), computed whenever it is read: mixers read the
    weights of their layers. An `nn.Linear` is converted in place, so `isinstance` and references to it still hold.

    Attributes:
        frozen: W, (O, I).
        weight_a: A, (R, I), drawn with variance 1 / I.
        weight_b: B, (O, R), zeros: the first outputs are those of W.
        scale: alpha / R.
    """

    frozen: nn.Parameter
    weight_a: nn.Parameter
    weight_b: nn.Parameter
    scale: float

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.frozen + self.scale * (self.weight_b @ self.weight_a)


def adapt(task: Any, lora: Lora) -> None:
    """Freezes the model of a task, and adds a trained update to the weights that `lora` selects.

    Raises:
        ValueError: `lora` selects no weight of a linear layer, or its rank exceeds a dimension of one.
    """
    model: nn.Module = getattr(task, "model", task)
    layers = {f"{name}.weight": part for name, part in model.named_modules() if type(part) is nn.Linear}
    chosen = {name: layer for name, layer in layers.items() if re.search(lora.targets, name)}
    if not chosen:
        names = dict.fromkeys(re.sub(r"\.\d+\.", ".0.", name) for name in layers)
        raise ValueError(
            f"--lora.targets {lora.targets} matches no weight of a linear layer; accepted, in any block: "
            f"{', '.join(names) or 'none'}"
        )
    for name, layer in chosen.items():
        if lora.rank > (smaller := min(layer.weight.shape)):
            raise ValueError(f"--lora.rank {lora.rank} is above {smaller}, the smaller dimension of {name}")
    model.requires_grad_(False)
    for layer in chosen.values():
        _convert(layer, lora)


def _convert(layer: Any, lora: Lora) -> None:
    frozen = layer.weight
    del layer.weight
    layer.__class__ = LowRankLinear
    layer.frozen, layer.scale = frozen, lora.scale
    outputs, inputs = frozen.shape
    layer.weight_a = nn.Parameter(torch.randn_like(frozen[: lora.rank]) * inputs**-0.5)
    layer.weight_b = nn.Parameter(frozen.new_zeros(outputs, lora.rank))


def merge(model: nn.Module) -> None:
    """Replaces each weight and its update by their sum, in place; the model is then one without LoRA."""
    for layer in (part for part in model.modules() if isinstance(part, LowRankLinear)):
        weight = _sum(layer.frozen, layer.weight_a, layer.weight_b, layer.scale)
        del layer.frozen, layer.weight_a, layer.weight_b, layer.scale
        layer.__class__ = nn.Linear  # type: ignore[assignment]
        layer.register_parameter("weight", nn.Parameter(weight))


def merged(weights: Mapping[str, Tensor], lora: Lora) -> dict[str, Tensor]:
    """Weights by name as after `merge`, from those of a model that `lora` has adapted."""
    merged = dict(weights)
    for name in [name for name in weights if name.endswith(".frozen")]:
        layer = name.removesuffix("frozen")
        frozen, a, b = (merged.pop(layer + part) for part in ("frozen", "weight_a", "weight_b"))
        merged[f"{layer}weight"] = _sum(frozen, a, b, lora.scale)
    return merged


@torch.no_grad()
def _sum(frozen: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + alpha / R B A in float64, rounded once to the type of W."""
    return (frozen.double() + scale * (b.double() @ a.double())).to(frozen.dtype)
