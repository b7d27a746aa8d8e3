"""Distributed training: data shards, distribution of the model over ranks, and gradients across ranks."""

from seqlab.parallel.fully_sharded import gathered
from seqlab.parallel.gradients import add_up, clip_by_norm, clip_by_value
from seqlab.parallel.meeting import meet_anew, part
from seqlab.parallel.ranks import DataParallel, data_parallel
from seqlab.parallel.strategy import STRATEGIES, SpreadStrategy, layout, set_tensor_parallel

__all__ = [
    "STRATEGIES",
    "DataParallel",
    "SpreadStrategy",
    "add_up",
    "clip_by_norm",
    "clip_by_value",
    "data_parallel",
    "gathered",
    "layout",
    "meet_anew",
    "part",
    "set_tensor_parallel",
]
