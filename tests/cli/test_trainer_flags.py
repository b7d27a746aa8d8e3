"""The trainer's flags simply work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lightning as L
import pytest
import yaml

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


@pytest.mark.slow
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
@pytest.mark.parametrize("config", ["lm/gru", "lm/attention-rope"])
def test_flag(flags: list[str], config: str, seqlab: Seqlab, tmp_path: Path) -> None:
    seqlab("fit", "--config", config, *TINY, *flags)
    kept = bool(list(tmp_path.glob("**/last.ckpt")))
    assert kept == ("--trainer.fast_dev_run=true" not in flags)


def test_one_batch_is_not_all_of_them(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's types are these after `compare` in the same process."""
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test", "predict")]
    for name in limits:
        monkeypatch.setitem(L.Trainer.__init__.__annotations__, name, float | int | None)
    one = [f"--trainer.{name}=1" for name in limits]
    said = inside(tmp_path)("fit", "--config", "lm/gru", *one, "--print_config").stdout
    trainer = yaml.safe_load(said)["trainer"]
    assert [repr(trainer[name]) for name in limits] == ["1"] * 4


@pytest.mark.slow
def test_compile(seqlab: Seqlab) -> None:
    seqlab("fit", "--config", "lm/attention-rope", *TINY, "--compile=true", "--run_name=compiled")
    assert seqlab("generate", "compiled", "--max-new-tokens", "3").stdout


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
def test_ddp_makes_one_run_and_sees_each_window_once(
    seqlab: Seqlab, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    (tmp_path / "notes.py").write_text(NOTES, encoding="utf-8")
    fit = ["fit", "--config", "lm/gru", *TINY, "--trainer.max_epochs=1", "--trainer.max_steps=-1"]
    one_epoch = [*fit, "--trainer.val_check_interval=1000", "--trainer.callbacks=notes.Notes"]
    seqlab(*one_epoch)
    alone = sorted((tmp_path / "rank-0").read_text().splitlines())
    (tmp_path / "rank-0").unlink()

    seqlab(*one_epoch, "--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu")
    ranks = [(tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert min(map(len, ranks)) > 0 and sorted(ranks[0] + ranks[1]) == alone
    assert len(inside(tmp_path)("compare", "--metric", "train/loss", "--quiet").stdout.split()) == 2
