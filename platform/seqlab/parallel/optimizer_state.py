"""Loading of a single-process optimiser state into an optimiser whose weights are sharded over ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer


def load_full_state(model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Loads a full state dict, read by every rank, in which weights are identified by index."""
    by_weight = {weight: name for name, weight in model.named_parameters()}
    names = [by_weight[weight] for group in optimizer.param_groups for weight in group["params"]]
    groups = [group | {"params": [names[number] for number in group["params"]]} for group in state["param_groups"]]
    named: Any = {"state": {names[number]: kept for number, kept in state["state"].items()}, "param_groups": groups}
    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimizer, named, options=options)
    if _spread_the_rest(optimizer):
        set_optimizer_state_dict(model, optimizer, named, options=options)


def _spread_the_rest(optimizer: Optimizer) -> bool:
    """Replaces unsharded per-weight tensors that other code keeps in the optimiser's state (`AveragedWeights`) by
    uninitialised ones sharded like the weights; PyTorch does not shard them. Returns whether there were any."""
    whole = [
        (weight, key)
        for weight, kept in optimizer.state.items()
        for key, value in kept.items()
        if isinstance(weight, DTensor) and isinstance(value, Tensor) and not isinstance(value, DTensor)
        if value.shape == weight.shape
    ]
    for weight, key in whole:
        optimizer.state[weight][key] = torch.empty_like(weight, requires_grad=False)
    return bool(whole)
