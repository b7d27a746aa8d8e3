"""The trainer's flags simply work."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab

FLAGS = {
    "bf16": ["--trainer.precision=bf16-mixed"],
    "accumulation and clipping": ["--trainer.accumulate_grad_batches=2", "--trainer.gradient_clip_val=0.5"],
    "fast_dev_run": ["--trainer.fast_dev_run=true"],
    "early stopping": [
        "--trainer.callbacks=EarlyStopping",
        "--trainer.callbacks.monitor=val/loss",
        "--trainer.callbacks.patience=1",
    ],
    "untracked": ["--trainer.logger=false"],
}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
@pytest.mark.parametrize("config", ["lm/gru", "lm/attention-rope"])
def test_flag(flags: list[str], config: str, seqlab: Seqlab, tmp_path: Path) -> None:
    seqlab("fit", "--config", config, *TINY, *flags)
    kept = bool(list(tmp_path.glob("**/last.ckpt")))
    assert kept == ("--trainer.fast_dev_run=true" not in flags)


@pytest.mark.slow
def test_compile(seqlab: Seqlab) -> None:
    seqlab("fit", "--config", "lm/attention-rope", *TINY, "--compile=true", "--run_name=compiled")
    assert seqlab("generate", "compiled", "--max-new-tokens", "3").stdout


def test_ddp_makes_one_run(seqlab: Seqlab) -> None:
    seqlab(
        "fit", "--config", "lm/gru", *TINY, "--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu"
    )
    assert len(seqlab("compare", "--quiet").stdout.split()) == 1
