"""The average of the weights: by hand, in validation, in checkpoints, and after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor

from callbacks.tiny_fit import KilledError, TinyData, TinyTask, Weights, fit, tiny_trainer, vector
from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.checkpoints.io import read_checkpoint
from trainers import quiet_trainer


def fitted(folder: Path, stop_at: int = -1) -> tuple[Weights, TinyTask]:
    weights, task = Weights(stop_at), TinyTask()
    fit(folder, [AveragedWeights(0.7), weights], task=task, accumulate_grad_batches=2, val_check_interval=4)
    return weights, task


def stored(folder: Path, name: str) -> Tensor:
    weights = read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["state_dict"]
    return torch.cat([weight.flatten() for weight in weights.values()])


def test_the_average_by_hand(tmp_path: Path) -> None:
    """It begins as the weights after the first step; the warm-up of its decay ends after step 21: 22 / 31 > 0.7."""
    weights, task = fitted(tmp_path)
    averages = [weights.trained[0].double()]
    for step, now in enumerate(weights.trained[1:], start=2):
        decay = min(0.7, (1 + step) / (10 + step))
        averages.append(decay * averages[-1] + (1 - decay) * now.double())
    assert len(weights.trained) == 12
    for seen, step in zip(weights.validated, (2, 6, 10), strict=True):
        torch.testing.assert_close(seen.double(), averages[step - 1], rtol=0, atol=1e-6)
    torch.testing.assert_close(vector(task).double(), averages[-1], rtol=0, atol=1e-6)
    for name, among in (("last", averages[-1:]), ("best", averages)):
        flat = stored(tmp_path, name)
        assert any((flat.double() - average).abs().max() < 1e-6 for average in among)
        assert not any(torch.equal(flat, now) for now in weights.trained[1:])
    trainer = tiny_trainer(tmp_path, max_epochs=4)
    with pytest.raises(ValueError, match="its weights are averages: resume it with --ema"):
        trainer.fit(TinyTask(), datamodule=TinyData(), ckpt_path=str(tmp_path / "checkpoints" / "last.ckpt"))


@pytest.mark.parametrize("stop_at", [4, 7, 16])
def test_it_goes_on_exactly(stop_at: int, tmp_path: Path) -> None:
    """Killed before its first step was kept, within an epoch and in the last."""
    whole, task = fitted(tmp_path / "whole")
    with pytest.raises(KilledError):
        fitted(tmp_path / "killed", stop_at)
    again, continued = fitted(tmp_path / "killed")
    assert torch.equal(again.trained[-1], whole.trained[-1])
    assert torch.equal(vector(task), vector(continued))
    assert torch.equal(stored(tmp_path / "whole", "best"), stored(tmp_path / "killed", "best"))


class Overflows(TinyTask):
    """Its first gradient, scaled as in 16-mixed, is not finite."""

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * (3e38 if batch_idx == 0 else 1)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_first_step_that_is_left_out_leaves_the_optimizer_new(tmp_path: Path) -> None:
    scaled = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    trainer = quiet_trainer(tmp_path, max_steps=3, plugins=[scaled], callbacks=[AveragedWeights(0.9)])
    trainer.fit(task := Overflows(), datamodule=TinyData())
    kept = [trainer.optimizers[0].state[weight] for weight in task.parameters()]
    assert all(one.keys() == {"step", "exp_avg", "exp_avg_sq", "average"} for one in kept)


def test_half_precision_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, [AveragedWeights(0.9)], max_steps=1, precision="bf16-true")
    with pytest.raises(ValueError, match=r"--ema averages .* and trainer\.precision bf16-true has them"):
        trainer.fit(TinyTask(), datamodule=TinyData())
