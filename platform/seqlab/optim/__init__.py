"""Optimisers, parameter groups and learning-rate schedules."""

from seqlab.optim.groups import (
    ByName,
    DecayMatrices,
    Groups,
    LayerwiseDecay,
    ParameterGroups,
    ScaledGroups,
    trained_alike,
)
from seqlab.optim.muon import Muon
from seqlab.optim.optimizers import SGD, Adafactor, AdamW, Lion, Optimizer
from seqlab.optim.schedules import (
    Constant,
    Cosine,
    InverseSquareRoot,
    Linear,
    Schedule,
    WarmupStableDecay,
    scheduled,
)

__all__ = [
    "SGD",
    "Adafactor",
    "AdamW",
    "ByName",
    "Constant",
    "Cosine",
    "DecayMatrices",
    "Groups",
    "InverseSquareRoot",
    "LayerwiseDecay",
    "Linear",
    "Lion",
    "Muon",
    "Optimizer",
    "ParameterGroups",
    "ScaledGroups",
    "Schedule",
    "WarmupStableDecay",
    "scheduled",
    "trained_alike",
]
