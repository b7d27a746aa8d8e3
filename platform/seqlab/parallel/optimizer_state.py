"""What an optimiser remembers of weights that are spread over ranks, as one process stores it: whole, and by the number
of each weight in the optimiser's groups."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer


def full_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state dict on rank 0, on the CPU; empty on the others. Every rank must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    named: Any = get_optimizer_state_dict(model, optimizer, options=options)
    return _keyed(named, {name: number for number, name in enumerate(_names(model, optimizer))}) if named else {}


def load_full_state(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Takes over a state dict that every rank has read."""
    named = _keyed(state, dict(enumerate(_names(model, optimizer))))
    set_optimizer_state_dict(model, optimizer, named, options=StateDictOptions(full_state_dict=True))


def _names(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Of each weight, by its number."""
    by_weight = {weight: name for name, weight in model.named_parameters()}
    return [by_weight[weight] for group in optimizer.param_groups for weight in group["params"]]


def _keyed(state: dict[str, Any], keys: dict[Any, Any]) -> dict[str, Any]:
    """A state dict of an optimiser by other keys of the weights."""
    groups = [group | {"params": [keys[key] for key in group["params"]]} for group in state["param_groups"]]
    return {"state": {keys[key]: kept for key, kept in state["state"].items()}, "param_groups": groups}
