"""FSDP2: every weight is spread over the ranks, and a block's are whole only while it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard

from seqlab.nn import Block

READS = ("begin", "init_state", "step")
"""Methods of a model or a block, besides `forward`, that compute with its weights."""


def shard_fully(model: nn.Module, mesh: DeviceMesh, precision: str) -> None:
    """Spreads the weights of each block, and then the rest of the model's, over the ranks of a mesh.

    Args:
        precision: Lightning's word. Autocast casts where it is mixed; gradients of half precision are added in float32.
    """
    if isinstance(model, FSDPModule):
        return
    half = precision in ("bf16-true", "16-true")
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32 if half else None)
    for module in (*(part for part in model.modules() if isinstance(part, Block)), model):
        fully_shard(module, mesh=mesh, mp_policy=policy, shard_placement_fn=_rows_or_width)
        for name in READS:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)


def _rows_or_width(weight: nn.Parameter) -> Shard | None:
    """Shards a weight by rows (None), but by width where tensor parallelism has divided the rows unevenly: FSDP2 would
    place such parts elsewhere than a DTensor says, and no checkpoint could be written."""
    if not isinstance(weight, DTensor) or Shard(0) not in weight.placements:
        return None
    return Shard(1) if len(weight) % weight.device_mesh.size() else None


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Gives every rank all weights of a model while open: each may then call it as often as it likes, and as often as a
    text is long, while the others do something else. Every rank must enter and leave it."""
    parts = [part for part in model.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(part is not model, recurse=False)
            part.reshard()
