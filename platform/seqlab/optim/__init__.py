"""Optimisers, the groups of parameters that they treat alike, and schedules of the learning rate."""

from seqlab.optim.optimizers import SGD, AdamW, DecayMatrices, Groups, Optimizer, ParameterGroups
from seqlab.optim.schedules import Constant, Cosine, Schedule, scheduled

__all__ = [
    "SGD",
    "AdamW",
    "Constant",
    "Cosine",
    "DecayMatrices",
    "Groups",
    "Optimizer",
    "ParameterGroups",
    "Schedule",
    "scheduled",
]
