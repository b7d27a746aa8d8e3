"""The counts of `num_tokens`: the real tokens or frames that a model reads, whatever their targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from scale.kinds import kinds, told, write_files
from seqlab.batch import IGNORE, LabelledBatch, PairBatch, TokenBatch
from seqlab.callbacks.run_tracker import RunTracker
from trainers import quiet_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
REAL = torch.tensor([[True, True, True, True], [True, True, False, False]])


def test_a_question_is_read_too_and_pads_are_not() -> None:
    tokens = torch.ones(3, 5, dtype=torch.int64)
    targets = torch.tensor([[IGNORE, IGNORE, 3, 4, IGNORE], [1, 2, 3, 4, 5], [IGNORE] * 5])
    batch = TokenBatch(tokens, targets, torch.ones(3))
    assert batch.pad_mask.sum(dim=1).tolist() == [4, 5, 0]
    assert batch.num_tokens == 9


def test_of_pairs_both_sides_count() -> None:
    targets = torch.tensor([[5, 6, 2], [5, 2, IGNORE]])
    assert PairBatch(REAL.long(), REAL, targets, targets, torch.arange(2)).num_tokens == 6 + 5


@pytest.mark.parametrize(
    "targets",
    [torch.zeros(2).long(), torch.zeros(2), torch.zeros(2, 4).long(), torch.zeros(2, 88), torch.zeros(2, 4, 88)],
    ids=["a class", "a number", "tags", "88 labels", "88 labels a frame"],
)
def test_frames_count_and_not_what_is_said_of_them(targets: torch.Tensor) -> None:
    assert LabelledBatch(torch.zeros(2, 4, 7), REAL, targets).num_tokens == 6


@pytest.mark.parametrize("name", ["language modelling", "masked", "translation", "classification", "tagging", "frames"])
def test_an_epoch_of_a_fit_counts_the_training_split(name: str, tmp_path: Path) -> None:
    """Counts by file: words, in pairs with the eos of each source and target, frames, and windows of 16 characters."""
    write_files(tmp_path)
    data, make = kinds(tmp_path)[name]
    tracker = RunTracker()
    trainer = quiet_trainer(tmp_path, max_epochs=1, limit_val_batches=0, callbacks=[tracker])
    trainer.fit(make(**told(data)), data)

    def lines(file: str) -> list[str]:
        return (tmp_path / file).read_text(encoding="utf-8").splitlines()

    windows: Any = data
    expected = {
        "translation": lambda: sum(len(side.split()) + 1 for line in lines("pairs.tsv") for side in line.split("\t")),
        "classification": lambda: sum(len(line.split()) - 1 for line in lines("labelled.txt")),
        "tagging": lambda: sum(line != "" for line in lines("tagged.conll")),
        "frames": lambda: sum(place % 9 + 1 for place in range(41)),
    }.get(name, lambda: 16 * sum(len(batch.tokens) for batch in windows.train_dataloader()))
    assert tracker.speed.metrics()["num_tokens"] == expected()
