"""Steps of a number of tokens: what is in one, what it trains on, and that it goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.tiny_fit import TinyData, TinyTask
from scale.kinds import kinds, told, write_files
from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.checkpoint_io import AtomicCheckpointIO
from seqlab.optim import SGD, Constant
from trainers import quiet_trainer

TOKENS = 137


class Watch(Callback):
    """The batches of each step; ends the fit before a batch."""

    def __init__(self, stop_at: int = -1) -> None:
        self.steps: dict[int, list[Any]] = {}
        self.stop_at, self.count = stop_at, 0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.count == self.stop_at:
            raise InterruptedError
        self.count += 1
        self.steps.setdefault(trainer.global_step, []).append(batch)


def fitted(folder: Path, watch: Watch, ckpt_path: str | None = None) -> Any:
    """Pairs of different lengths, in float64."""
    torch.manual_seed(0)
    write_files(folder)
    data: Any
    data, make = kinds(folder)["translation"]
    data.batch_size, data.max_tokens = 2, 40
    task = make(**told(data), lr=0.1, warmup_steps=0, optimizer=SGD, schedule=Constant)
    checkpoints = Checkpoints(every_n_steps=1)
    checkpoints.dirpath = str(folder)
    callbacks = [TokensPerStep(TOKENS), watch, ExactResume(0), checkpoints]
    options: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        max_steps=7,
        precision="64-true",
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        limit_val_batches=0,
        gradient_clip_val=1e9,
        use_distributed_sampler=False,
        **options,
    )
    trainer.fit(task, data, ckpt_path=ckpt_path)
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


@pytest.mark.parametrize("stop_at", [4, 9])
def test_it_goes_on_exactly(tmp_path: Path, stop_at: int) -> None:
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    whole = fitted(tmp_path / "whole", Watch())
    with pytest.raises(InterruptedError):
        fitted(tmp_path / "stopped", Watch(stop_at))
    watch = Watch()
    again = fitted(tmp_path / "stopped", watch, str(tmp_path / "stopped" / "last.ckpt"))
    assert min(watch.steps) > 0
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


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
    with pytest.raises(ValueError, match="TinyTask is none"):
        quiet_trainer(tmp_path, callbacks=[TokensPerStep(9)], max_steps=3).fit(TinyTask(), TinyData())
    with pytest.raises(ValueError, match="at least 1, got 0"):
        TokensPerStep(0)
