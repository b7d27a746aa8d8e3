"""Every task in every precision: a fit, its scores and its predictions. What needs a device is marked so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from callbacks.tiny_fit import TinyTask, fit
from scale.kinds import KINDS, of_kind
from seqlab.batch import LabelledBatch
from seqlab.config.options import check_precision
from seqlab.half_precision import HalfInputs

ON_CPU = {"bf16-mixed": torch.float32, "bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64}
"""The dtype of the weights."""


def trained(name: str, folder: Path, precision: str, device: str = "cpu") -> tuple[Mapping[str, float], Any, set[Any]]:
    """The scores of a test after two steps, the task, and the dtypes of the losses."""
    data, task = of_kind(name, folder)
    summed, dtypes = task.loss, set()

    def loss(batch: Any) -> tuple[Tensor, Tensor]:
        total, count = summed(batch)
        dtypes.add(total.dtype)
        return total, count

    task.loss = loss
    options: dict[str, Any] = {"limit_val_batches": 1, "limit_test_batches": 2, "limit_predict_batches": 1}
    options |= {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options |= {"accelerator": device, "devices": 1, "precision": precision, "enable_model_summary": False}
    trainer = L.Trainer(max_steps=2, use_distributed_sampler=False, **options)
    trainer.fit(task, data)
    (scores,) = trainer.test(task, data, verbose=False)
    assert trainer.predict(task, data)
    return scores, task, dtypes


@pytest.mark.parametrize("name", KINDS)
def test_every_task_in_every_precision(name: str, files: Path) -> None:
    """The first steps are float32's but for rounding; losses are at least float32, and float64 where weights are."""
    scores, _, _ = trained(name, files, "32-true")
    for precision, weights in ON_CPU.items():
        found, task, dtypes = trained(name, files, precision)
        assert {weight.dtype for weight in task.parameters()} == {weights}
        assert dtypes == {torch.promote_types(weights, torch.float32)}, precision
        near = 1e-6 if precision == "64-true" else 0.02
        assert found["test/loss"] == pytest.approx(scores["test/loss"], rel=near), precision


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("name", KINDS)
def test_every_task_in_half_precision_on_a_device(name: str, precision: str, files: Path) -> None:
    scores, _, _ = trained(name, files, "32-true", "gpu")
    found, _, dtypes = trained(name, files, precision, "gpu")
    assert dtypes == {torch.float32}
    assert found["test/loss"] == pytest.approx(scores["test/loss"], rel=0.05)


def test_targets_keep_their_digits_where_inputs_are_rounded() -> None:
    third = torch.full((1, 1, 1), 1 / 3)
    batch = LabelledBatch(third, torch.ones(1, 1, dtype=torch.bool), third[:, 0, 0])
    read = HalfInputs("bf16-true").convert_input(batch)
    assert read.inputs.dtype == torch.bfloat16
    assert read.targets.dtype == torch.float32 and read.targets.item() == batch.targets.item()


@pytest.mark.filterwarnings("ignore:You passed")
@pytest.mark.parametrize("precision", [None, 32, "32", "32-true", "bf16-mixed", "64-true", "16-mixed"])
def test_a_precision_that_is_not_kept_is_refused(precision: Any) -> None:
    trainer = L.Trainer(precision=precision, accelerator="cpu", logger=False)
    if precision != "16-mixed":
        check_precision(trainer, precision)
    else:
        with pytest.raises(ValueError, match="16-mixed, which a CPU does not have; give bf16-mixed or 32-true"):
            check_precision(trainer, precision)


def test_bf16_mixed_computes_in_bf16_and_keeps_float32_weights(tmp_path: Path) -> None:
    dtypes, task = set(), TinyTask()
    task.model[0].register_forward_hook(lambda module, x, y: dtypes.add(y.dtype))
    fit(tmp_path, task=task, max_epochs=1, limit_val_batches=0, precision="bf16-mixed")
    assert dtypes == {torch.bfloat16}
    assert {weight.dtype for weight in task.parameters()} == {torch.float32}
