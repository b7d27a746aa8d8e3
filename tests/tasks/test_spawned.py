"""Strategies that spawn processes (ddp_spawn) can send them everything that they need."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from scale.kinds import KINDS, of_kind, write_files
from seqlab.callbacks.roll_call import RollCall


@pytest.mark.parametrize("name", KINDS)
def test_a_task_of_every_kind(name: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    _, task = of_kind(name, tmp_path)
    sent = pickle.loads(pickle.dumps(task))
    optimizer = sent.optimizer(sent.parameters(), 0.1)
    assert type(optimizer) is type(task.optimizer(task.parameters(), 0.1))
    assert all(torch.equal(weight, sent.state_dict()[name]) for name, weight in task.state_dict().items())


def test_a_roll_call() -> None:
    assert pickle.loads(pickle.dumps(RollCall(3.0))).timeout == 3.0
