"""The trainer's flags simply work, and a precision does from the fit to the proven bundle."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.plugins.precision import DoublePrecision, MixedPrecision

from cli.conftest import TINY, Seqlab, last_weights, send
from cli.test_stopped_fit import FIT
from seqlab.half_precision import HalfInputs
from seqlab.tasks.language_modeling import LanguageModeling

STORED = {
    "bf16-true": (torch.bfloat16, HalfInputs),
    "64-true": (torch.float64, DoublePrecision),
    "bf16-mixed": (torch.float32, MixedPrecision),
    "16-true": (torch.float16, HalfInputs),
}
"""Dtypes of weights, and what reads the batches."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (["accumulate_grad_batches=2", "gradient_clip_val=0.5"], True),
        (["fast_dev_run=true"], False),
        (["logger=false"], True),
    ],
)
def test_a_flag_leaves_the_checkpoint_that_it_should(
    flags: list[str], kept: bool, quick: Seqlab, tmp_path: Path
) -> None:
    quick("fit", "--config", "lm/gru", *TINY, *(f"--trainer.{flag}" for flag in flags))
    assert bool(list(tmp_path.glob("**/last.ckpt"))) == kept


def test_one_batch_is_not_all_of_them(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's types are these after `compare` in the same process."""
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test", "predict")]
    for name in limits:
        monkeypatch.setitem(L.Trainer.__init__.__annotations__, name, float | int | None)
    said = quick("fit", "--config", "lm/gru", *(f"--trainer.{name}=1" for name in limits), "--print_config").stdout
    trainer = yaml.safe_load(said)["trainer"]
    assert [repr(trainer[name]) for name in limits] == ["1"] * 4


@pytest.mark.slow
def test_a_compiled_run_generates(quick: Seqlab) -> None:
    quick("fit", "--config", "lm/attention-rope", *TINY, "--compile=true", "--run_name=compiled")
    assert quick("generate", "compiled", "--max-new-tokens", "3").stdout


NOTES = '''
import json
from pathlib import Path
from lightning.pytorch.callbacks import Callback


class Notes(Callback):
    """Appends the windows of each training batch to a file of this rank."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        with Path(f"rank-{trainer.global_rank}").open("a") as file:
            file.writelines(json.dumps(window) + "\\n" for window in batch.tokens.tolist())
'''


@pytest.mark.slow
def test_ddp_makes_one_run_and_sees_each_window_once(quick: Seqlab, seqlab: Seqlab, tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES, encoding="utf-8")
    fit = ["fit", "--config", "lm/gru", *TINY, "--trainer.max_epochs=1", "--trainer.max_steps=-1"]
    one_epoch = [*fit, "--trainer.val_check_interval=1000", "--trainer.callbacks=notes.Notes"]
    quick(*one_epoch)
    alone = sorted((tmp_path / "rank-0").read_text().splitlines())
    (tmp_path / "rank-0").unlink()

    seqlab(*one_epoch, "--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu")
    ranks = [(tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert min(map(len, ranks)) > 0 and sorted(ranks[0] + ranks[1]) == alone
    assert len(quick("compare", "--metric", "train/loss", "--quiet").stdout.split()) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize(("precision", "dtype", "plugin"), [(name, *of) for name, of in STORED.items()])
def test_a_precision_from_a_stopped_fit_to_a_proven_bundle(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch, precision: str, dtype: torch.dtype, plugin: type
) -> None:
    fit = (*FIT, f"--trainer.precision={precision}")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, 3)
        quick(*fit, "--run_name=stopped", code=143)
    quick("resume", "stopped")
    train, found = LanguageModeling.training_step, set()

    def sees(self: LanguageModeling, batch: Any, batch_idx: int) -> Any:
        found.add(type(self.trainer.precision_plugin))
        return train(self, batch, batch_idx)

    monkeypatch.setattr(LanguageModeling, "training_step", sees)
    quick(*fit, "--run_name=whole")
    resumed, whole = last_weights("stopped"), last_weights("whole")
    assert ({weight.dtype for weight in whole.values()}, found) == ({dtype}, {plugin})
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert re.search(r"test/loss .* 3\.\d+", quick("test", "whole").stdout)
    assert "greedy" in quick("export", "whole", "--out=bundle").stdout
    quick("verify", "bundle")


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("16-mixed", "trainer.precision is 16-mixed, which a CPU does not have; give bf16-mixed or 32-true"),
        ("transformer-engine", "needs the package transformer_engine, which is not installed; `pip install"),
    ],
)
def test_a_precision_that_cannot_be_computed_is_refused(quick: Seqlab, precision: str, said: str) -> None:
    (line,) = quick(*FIT, f"--trainer.precision={precision}", code=2).stderr.splitlines()
    assert said in line
