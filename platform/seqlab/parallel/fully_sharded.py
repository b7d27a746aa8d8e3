"""FSDP2: every weight is sharded over the ranks, and a block's weights are gathered only while it computes."""

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
"""Methods of a model or a block, other than `forward`, that use its weights."""


def shard_fully(model: nn.Module, mesh: DeviceMesh, precision: str) -> None:
    """Shards the weights of each block, and then the model's other weights, over the ranks of a mesh.

    Args:
        precision: Lightning's precision name. Mixed precision is left to autocast; with half-precision weights,
            gradients are reduced in float32.
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
    """Shards a weight by rows (None), or by width if tensor parallelism has sharded the rows unevenly: FSDP2 would
    place such shards differently from their DTensor layout, and no checkpoint could be written."""
    if not isinstance(weight, DTensor) or Shard(0) not in weight.placements:
        return None
    return Shard(1) if len(weight) % weight.device_mesh.size() else None


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Context in which every rank holds all weights of a model, so that ranks may call it independently and a different
    number of times, e.g. to decode. Every rank must enter and leave it."""
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
