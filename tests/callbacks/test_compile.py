"""A compiled fit: its checkpoints load in an uncompiled one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from callbacks.tiny_fit import TinyData, TinyTask, tiny_trainer
from seqlab.checkpoint_io import read_checkpoint


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_checkpoint_of_a_compiled_fit_loads_uncompiled(tmp_path: Path) -> None:
    torch.compiler.reset()
    compiled = TinyTask()
    compiled.model.compile()
    tiny_trainer(tmp_path, max_epochs=1).fit(compiled, datamodule=TinyData())
    assert compiled.model._compiled_call_impl is not None
    path = tmp_path / "checkpoints" / "last.ckpt"
    plain = TinyTask()
    assert list(read_checkpoint(path)["state_dict"]) == list(plain.state_dict())
    tiny_trainer(tmp_path, max_epochs=2).fit(plain, datamodule=TinyData(), ckpt_path=str(path))
    assert plain.trainer.global_step == 14
