"""Tensor parallelism: a model is cut over ranks, layer by layer, as its blocks declare (`Mixer.cuts`)."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

STYLES = {
    "columns": ColwiseParallel,
    "rows": RowwiseParallel,
    # Heads are what others' sequences are: (B, H, T, K) is shared over its second dimension.
    "heads": partial(SequenceParallel, sequence_dim=1, use_local_output=True),
}


def cut(model: nn.Module, mesh: DeviceMesh) -> None:
    """Cuts what says how over the ranks of a mesh; the rest each of them computes whole.

    Raises:
        ValueError: a block cannot be cut over so many ranks.
    """
    if mesh.size() == 1 or any(isinstance(weight, DTensor) for weight in model.parameters()):
        return
    for module in [module for module in model.modules() if getattr(module, "cuts", None)]:
        if hasattr(module, "cut"):
            module.cut(mesh.size())  # type: ignore[operator]
        parallelize_module(module, mesh, {name: STYLES[how]() for name, how in module.cuts.items()})  # type: ignore
