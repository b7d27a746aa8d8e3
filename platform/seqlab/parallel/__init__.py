"""Many processes as one: which share of the data each has, how the model is spread over them, and their gradients."""

from seqlab.parallel.fully_sharded import whole
from seqlab.parallel.ranks import DataParallel, data_parallel
from seqlab.parallel.strategy import STRATEGIES, SpreadStrategy, set_tensor_parallel

__all__ = ["STRATEGIES", "DataParallel", "SpreadStrategy", "data_parallel", "set_tensor_parallel", "whole"]
