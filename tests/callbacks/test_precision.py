"""The trainer computes in the precision that it was asked for, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from callbacks.tiny_fit import TinyTask, fit
from seqlab.config.options import check_precision


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
