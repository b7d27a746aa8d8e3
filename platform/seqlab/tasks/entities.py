"""Entity-level scores of BIO tags, as one torchmetrics Metric."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from seqlab.tasks.metrics import RANGES, Buckets

_TAG = re.compile(r"O|[BIES](-.+)?")


def spell_entities(labels: Sequence[str]) -> bool:
    """True if every label is O, or B, I, E or S, alone or with -TYPE. Tags such as NOUN do not mark entities."""
    return all(_TAG.fullmatch(label) for label in labels)


class EntityScores(Metric):
    """Micro-averaged precision, recall and F1 of entities. An entity is correct if its type, first token and last token
    all match (Tjong Kim Sang & De Meulder 2003). seqeval extracts the entities as conlleval does: I-X after another
    tag begins a new one.

    F1 is also reported by sentence length in words, for lengths with entities. Counts are reduced over devices, so the
    result is corpus-level. Without entities a score is 0.

    Args:
        buckets: length buckets.
    """

    full_state_update = False
    num_right: Tensor
    num_predicted: Tensor
    num_true: Tensor

    def __init__(self, buckets: Buckets = RANGES) -> None:
        super().__init__()
        self.buckets = buckets
        for name in ("num_right", "num_predicted", "num_true"):
            self.add_state(name, torch.zeros(len(buckets.names), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> None:
        """Adds the predicted and true tags of a batch of sentences."""
        # Imported here because it loads scikit-learn, which is slow and needed only here.
        from seqeval.metrics.sequence_labeling import get_entities

        places = self.buckets.places(torch.tensor([len(truth) for truth in true])).tolist()
        for guess, truth, place in zip(predicted, true, places, strict=True):
            found, wanted = set(get_entities(list(guess))), set(get_entities(list(truth)))
            self.num_right[place] += len(found & wanted)
            self.num_predicted[place] += len(found)
            self.num_true[place] += len(wanted)

    def compute(self) -> dict[str, Tensor]:
        right, predicted, true = self.num_right.sum(), self.num_predicted.sum(), self.num_true.sum()
        either = self.num_predicted + self.num_true
        by_length = {
            f"f1_by_length/{name}": 2 * self.num_right[place] / either[place]
            for place, name in enumerate(self.buckets.names)
            if either[place] > 0
        }
        return {
            "precision": right / predicted.clamp(min=1),
            "recall": right / true.clamp(min=1),
            "f1": 2 * right / (predicted + true).clamp(min=1),
            **by_length,
        }
