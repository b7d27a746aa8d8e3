"""Synthetic tasks: what a model can and cannot remember, find and follow."""

from seqlab_data.synthetic.base import Draw, Example, SyntheticTask
from seqlab_data.synthetic.copying import Copy, Reverse, SelectiveCopy, Sort
from seqlab_data.synthetic.data import SyntheticDataModule
from seqlab_data.synthetic.recall import AssociativeRecall, InductionHeads
from seqlab_data.synthetic.regular import CycleNavigation, EvenPairs, ModularArithmetic, Parity

__all__ = [
    "AssociativeRecall",
    "Copy",
    "CycleNavigation",
    "Draw",
    "EvenPairs",
    "Example",
    "InductionHeads",
    "ModularArithmetic",
    "Parity",
    "Reverse",
    "SelectiveCopy",
    "Sort",
    "SyntheticDataModule",
    "SyntheticTask",
]
