"""Tensor parallelism: a model is cut over ranks, layer by layer, as its blocks declare (`Mixer.cuts`)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "columns": ColwiseParallel,
    "rows": RowwiseParallel,
    # Heads are what others' sequences are: (B, H, T, K) is shared over its second dimension.
    "heads": partial(SequenceParallel, sequence_dim=1, use_local_output=True),
}


def check_cut(model: nn.Module, ranks: int) -> None:
    """Raises ValueError where a block of a model cannot be cut over so many ranks."""
    for module in _cuttable(model) if ranks > 1 else []:
        copy(module).cut(ranks)


def cut(model: nn.Module, mesh: DeviceMesh) -> None:
    """Cuts what says how over the ranks of a mesh; the rest each of them computes whole.

    Raises:
        ValueError: as of `check_cut`.
    """
    if mesh.size() == 1 or any(isinstance(weight, DTensor) for weight in model.parameters()):
        return
    for module in _cuttable(model):
        module.cut(mesh.size())
        parallelize_module(module, mesh, {name: STYLES[how]() for name, how in module.cuts.items()})


def _cuttable(model: nn.Module) -> list[Any]:
    """What declares `cuts`."""
    return [module for module in model.modules() if getattr(module, "cuts", None)]
