"""Laws of all tasks: each evaluation begins afresh, what counts for nothing teaches nothing, and all can be sent."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import seqlab.tasks
from scale.kinds import KINDS, kinds, of_kind
from seqlab.batch import IGNORE
from seqlab.callbacks.roll_call import RollCall
from seqlab.tasks.task import Task
from tasks.evaluated import trained
from trainers import loader, quiet_trainer


def rows_of(batch: Any, count: int) -> Any:
    """A batch of the first rows alone."""
    return type(batch)(*(part if part is None else part[:count] for part in batch))


def test_every_task_is_here(files: Path) -> None:
    every = {getattr(seqlab.tasks, name) for name in seqlab.tasks.__all__}
    assert {make.func for _, make in kinds(files).values()} == {each for each in every if issubclass(each, Task)}


@pytest.mark.parametrize("name", KINDS)
def test_a_second_evaluation_scores_as_a_first_one(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is of a few rows of the validation split, the one between of the whole test split."""
    data, task = of_kind(name, files)
    for parameter in task.parameters():
        nn.init.normal_(parameter, std=0.5)
    trainer = quiet_trainer(files)
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


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_that_counts_for_nothing_teaches_nothing(name: str, files: Path) -> None:
    data, task = of_kind(name, files)
    data.prepare_data()
    data.setup("fit")
    some = next(iter(data.train_dataloader()))
    assert trained(task, some) > 0
    nothing = torch.full_like(some.targets, torch.nan if some.targets.is_floating_point() else IGNORE)
    loss = trained(task, some._replace(targets=nothing))
    loss.backward()
    gradients = [weight.grad for weight in task.parameters() if weight.grad is not None]
    assert loss == 0 and gradients and not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", KINDS)
def test_a_task_can_be_sent_to_a_process_that_is_spawned(name: str, files: Path) -> None:
    _, task = of_kind(name, files)
    sent = pickle.loads(pickle.dumps(task))
    optimizer = sent.optimizer(sent.parameters(), 0.1)
    assert type(optimizer) is type(task.optimizer(task.parameters(), 0.1))
    assert all(torch.equal(weight, sent.state_dict()[name]) for name, weight in task.state_dict().items())


def test_a_roll_call_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(RollCall(3.0))).timeout == 3.0
