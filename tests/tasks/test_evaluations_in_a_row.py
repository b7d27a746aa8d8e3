"""Every task begins each evaluation afresh: what was scored before it has no part in its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import seqlab.tasks
from scale.kinds import kinds, of_kind, write_files
from seqlab.tasks.task import Task
from trainers import loader, quiet_trainer

NAMES = "language modelling", "masked", "answering", "translation", "classification", "tagging", "regression", "frames"


def rows_of(batch: Any, count: int) -> Any:
    """A batch of the first rows alone."""
    return type(batch)(*(part if part is None else part[:count] for part in batch))


def test_every_task_is_here(tmp_path: Path) -> None:
    write_files(tmp_path)
    every = {getattr(seqlab.tasks, name) for name in seqlab.tasks.__all__}
    tested = {make.func for name, (_, make) in kinds(tmp_path).items() if name in NAMES}
    assert tested == {each for each in every if issubclass(each, Task)}


@pytest.mark.parametrize("name", NAMES)
def test_a_second_evaluation_scores_as_a_first_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is of a few rows of the validation split, the one between of the whole test split."""
    write_files(tmp_path)
    data, task = of_kind(name, tmp_path)
    for parameter in task.parameters():
        nn.init.normal_(parameter, std=0.5)
    trainer = quiet_trainer(tmp_path)
    data.prepare_data()
    data.setup("validate")
    few = loader([rows_of(next(iter(data.val_dataloader())), 3)])
    monkeypatch.setattr(data, "val_dataloader", lambda: few)
    (alone,) = trainer.validate(task, data, verbose=False)
    (other,) = trainer.test(task, data, verbose=False)
    (again,) = trainer.validate(task, data, verbose=False)
    assert again == alone
    assert alone["val/loss"] != other["test/loss"], "this test could not fail"
    assert {f"val/{score}" for score in task.shown} <= set(alone), "what progress shows is scored"
