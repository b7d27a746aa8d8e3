"""The trainer computes in the precision that it was asked for, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.tiny_fit import TinyData, TinyTask, tiny_trainer
from seqlab.config.options import check_precision


@pytest.mark.parametrize("precision", [None, 32, "32", "32-true", "bf16-mixed", "64-true"])
def test_a_precision_that_is_kept_is_accepted(precision: Any) -> None:
    check_precision(L.Trainer(precision=precision, accelerator="cpu", logger=False), precision)


def test_half_precision_on_a_cpu_is_refused() -> None:
    trainer = L.Trainer(precision="16-mixed", accelerator="cpu", logger=False)
    with pytest.raises(ValueError, match="16-mixed, which a CPU does not have; give bf16-mixed or 32-true"):
        check_precision(trainer, "16-mixed")


def test_bf16_mixed_computes_in_bf16_and_keeps_float32_weights(tmp_path: Path) -> None:
    dtypes = set()

    class Watch(Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
            pl_module.model[0].register_forward_hook(lambda module, x, y: dtypes.add(y.dtype))

    task = TinyTask()
    tiny_trainer(tmp_path, [Watch()], max_epochs=1, precision="bf16-mixed").fit(task, datamodule=TinyData())
    assert dtypes == {torch.bfloat16}
    assert {weight.dtype for weight in task.parameters()} == {torch.float32}
