"""Synthetic tasks that probe a model's memory, recall and state tracking."""

from seqlab_data.generated import Draw
from seqlab_data.synthetic.arithmetic import Addition
from seqlab_data.synthetic.base import Example, SyntheticTask
from seqlab_data.synthetic.copying import Copy, Delay, Reverse, SelectiveCopy, Sort
from seqlab_data.synthetic.data import SyntheticDataModule
from seqlab_data.synthetic.needles import NeedleRetrieval, VariableTracking
from seqlab_data.synthetic.recall import AssociativeRecall, InductionHeads, NeedleInHaystack
from seqlab_data.synthetic.regular import CycleNavigation, EvenPairs, ModularArithmetic, Parity, PermutationProduct
from seqlab_data.synthetic.stacks import Dyck, ListOps, StackManipulation

__all__ = [
    "Addition",
    "AssociativeRecall",
    "Copy",
    "CycleNavigation",
    "Delay",
    "Draw",
    "Dyck",
    "EvenPairs",
    "Example",
    "InductionHeads",
    "ListOps",
    "ModularArithmetic",
    "NeedleInHaystack",
    "NeedleRetrieval",
    "Parity",
    "PermutationProduct",
    "Reverse",
    "SelectiveCopy",
    "Sort",
    "StackManipulation",
    "SyntheticDataModule",
    "SyntheticTask",
    "VariableTracking",
]
