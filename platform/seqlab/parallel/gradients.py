"""Norm and clipping of gradients with mixed layouts: replicated, FSDP2-sharded, tensor-parallel, or both.

PyTorch's functions accept gradients of only one device mesh at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer


def add_up(weights: Iterable[Tensor]) -> None:
    """Reduces gradients that are partial sums over ranks, in place."""
    for _ in _with_gradients(weights):
        pass


def norm_of(weights: Iterable[Tensor]) -> Tensor:
    """Norm of all gradients together, (); 0 if there are none."""
    groups = _by_mesh(_with_gradients(weights))
    norms = [_full_norm(get_total_norm([weight.grad for weight in group])) for group in groups]  # type: ignore[misc]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms or [torch.zeros(())]))


def clip_by_norm(weights: Iterable[Tensor], most: float) -> Tensor:
    """Scales all gradients by one factor so that their norm is at most `most`; returns the norm before clipping, ()."""
    weights = list(weights)
    norm = norm_of(weights)
    for group in _by_mesh(_with_gradients(weights)):
        clip_grads_with_norm_(group, most, norm)
    return norm


def clip_by_value(weights: Iterable[Tensor], most: float) -> None:
    """Clamps every element of every gradient to -most .. most."""
    for group in _by_mesh(_with_gradients(weights)):
        clip_grad_value_(group, most)


def step_singly(optimizer: Optimizer) -> None:
    """Disables multi-tensor and fused updates, the default on a GPU, for groups with weights of several meshes."""
    for group in optimizer.param_groups:
        if len(_by_mesh(group["params"])) > 1:
            group |= {how: False for how in ("foreach", "fused") if how in group}


def _with_gradients(weights: Iterable[Tensor]) -> Iterator[Tensor]:
    """Weights that have a gradient, each first redistributed to its weight's layout, which reduces partial sums."""
    for weight in weights:
        if isinstance(weight.grad, DTensor) and isinstance(weight, DTensor):
            weight.grad = weight.grad.redistribute(placements=weight.placements)
        if weight.grad is not None:
            yield weight


def _by_mesh(weights: Iterable[Tensor]) -> list[list[Tensor]]:
    """Weights grouped by their device mesh; plain tensors form one group."""
    groups: dict[Any, list[Tensor]] = {}
    for weight in weights:
        groups.setdefault(weight.device_mesh if isinstance(weight, DTensor) else None, []).append(weight)
    return list(groups.values())


def _full_norm(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
