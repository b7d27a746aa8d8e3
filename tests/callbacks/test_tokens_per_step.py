"""Steps of a number of tokens: what is in one, what it trains on, and that it goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from callbacks.tiny_fit import EndBefore, KilledError, TinyData, TinyTask, tiny_trainer, vector
from scale.kinds import kinds, told, write_files
from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.optim import SGD, Constant
from trainers import quiet_trainer

TOKENS = 137


class Watch(EndBefore):
    """The batches of each step, and an end before one."""

    def __init__(self, stop_at: int = -1) -> None:
        super().__init__(stop_at)
        self.steps: dict[int, list[Any]] = {}

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(trainer)
        self.steps.setdefault(trainer.global_step, []).append(batch)


def fitted(folder: Path, watch: Watch) -> Any:
    """Pairs of different lengths, in float64."""
    torch.manual_seed(0)
    write_files(folder)
    data: Any
    data, make = kinds(folder)["translation"]
    data.batch_size, data.max_tokens = 2, 40
    task = make(**told(data), lr=0.1, warmup_steps=0, optimizer=SGD, schedule=Constant)
    options: dict[str, Any] = {"max_epochs": -1, "max_steps": 7, "limit_val_batches": 0, "gradient_clip_val": 1e9}
    trainer = tiny_trainer(folder, [TokensPerStep(TOKENS), watch], precision="64-true", **options)
    last = folder / "checkpoints" / "last.ckpt"
    trainer.fit(task, data, ckpt_path=str(last) if last.exists() else None)
    return task


def test_a_step_trains_on_the_mean_of_all_its_tokens(tmp_path: Path) -> None:
    watch = Watch()
    task = fitted(tmp_path, watch)
    read = [[int(batch.num_tokens) for batch in batches] for batches in watch.steps.values()]
    assert len(read) == 7 and len({len(some) for some in read}) > 1, "steps have different numbers of batches"
    full = [some for some in read if sum(some) >= TOKENS]
    assert all(sum(some[:-1]) < TOKENS for some in read)
    assert len(read) - len(full) <= 2, "only an epoch's last may have fewer"
    torch.manual_seed(0)
    data, make = kinds(tmp_path)["translation"]
    data.prepare_data()
    data.setup("fit")
    again = make(**told(data)).double()
    optimizer = torch.optim.SGD(again.groups(again.model.named_parameters()), lr=0.1, momentum=0.9)
    for batches in watch.steps.values():
        summed = [again.loss(batch) for batch in batches]
        optimizer.zero_grad()
        loss = sum(total for total, _ in summed) / sum(count for _, count in summed)
        loss.backward()
        optimizer.step()
    for found, expected in zip(task.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert task.tokens_per_step is None, "another fit of the task is its own"


@pytest.mark.parametrize("stop_at", [9, 14])
def test_it_goes_on_exactly(tmp_path: Path, stop_at: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    with pytest.raises(KilledError):
        fitted(killed, Watch(stop_at))
    again = fitted(killed, watch := Watch())
    assert min(watch.steps) > 0
    assert torch.equal(vector(fitted(whole, Watch())), vector(again))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_steps": 3, "accumulate_grad_batches": 2}, "leave out trainer.accumulate_grad_batches"),
        ({"max_epochs": 1}, "needs trainer.max_steps"),
    ],
)
def test_what_does_not_go_with_it_is_refused(flags: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    data, make = kinds(tmp_path)["language modelling"]
    with pytest.raises(ValueError, match=said):
        quiet_trainer(tmp_path, callbacks=[TokensPerStep(9)], **flags).fit(make(**told(data)), data)


def test_it_counts_for_tasks_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="TinyTask is not one"):
        quiet_trainer(tmp_path, callbacks=[TokensPerStep(9)], max_steps=3).fit(TinyTask(), TinyData())
