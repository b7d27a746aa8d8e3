"""Checkpoints that a fit leaves: their names, when they are written, and their content."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from torch import Tensor

from callbacks.tiny_fit import BATCHES_AN_EPOCH, Diary, TinyData, TinyTask, tiny_trainer
from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint


class Scored(TinyTask):
    """Its validation losses are given, one a validation."""

    def __init__(self, scores: Sequence[float]) -> None:
        super().__init__()
        self.scores = iter(scores)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Nothing to compute."""

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.log("val/loss", next(self.scores))


class Recorder(L.Trainer):
    """Notes each write as (name, optimiser step)."""

    callbacks: list[L.Callback]
    writes: list[tuple[str, int]]

    def save_checkpoint(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        self.writes.append((Path(filepath).stem, self.global_step))
        super().save_checkpoint(filepath, *args, **kwargs)


def recorder(folder: Path, checkpoints: Checkpoints, **flags: Any) -> Recorder:
    flags |= {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    flags |= {"logger": Diary(folder), "callbacks": [checkpoints], "plugins": [AtomicCheckpointIO()]}
    trainer = Recorder(accelerator="cpu", **flags)
    trainer.writes = []
    return trainer


def fitted(
    folder: Path,
    *callbacks: L.Callback,
    checkpoints: Checkpoints | None = None,
    scores: Sequence[float] | None = None,
    ckpt_path: str | None = None,
    **flags: Any,
) -> Recorder:
    """The trainer of a fit, whose validation losses may be given."""
    trainer = recorder(folder, checkpoints or Checkpoints(), **flags)
    trainer.callbacks[:0] = callbacks
    task = TinyTask() if scores is None else Scored(scores)
    trainer.fit(task, datamodule=TinyData(), ckpt_path=ckpt_path)
    return trainer


def epoch_of(folder: Path, name: str) -> int:
    epoch: int = read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")["epoch"]
    return epoch


def last_of(folder: Path) -> str:
    return str(folder / "checkpoints" / "last.ckpt")


class CharacterStub:
    def to_dict(self) -> dict[str, str]:
        return {"characters": "ab"}


def test_best_and_last_are_left_with_what_seqlab_adds(tmp_path: Path) -> None:
    config = {"model": {"lr": 1e-3, "betas": [0.9, 0.99], "mixer": None}}
    trainer = recorder(tmp_path, Checkpoints(config=config), max_epochs=3)
    data: Any = TinyData()
    data.tokenizer, data.vocab_size = CharacterStub(), 2
    trainer.fit(Scored([3.0, 1.0, 2.0]), datamodule=data)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["best.ckpt", "last.ckpt"]
    assert (epoch_of(tmp_path, "best"), epoch_of(tmp_path, "last")) == (1, 2)
    for name in ("best", "last"):
        assert read_checkpoint(tmp_path / "checkpoints" / f"{name}.ckpt")["seqlab"] == {
            "config": config,
            "labels": None,
            "told": {"vocab_size": 2},
            "tokenizer": {"characters": "ab"},
            "source_tokenizer": None,
            "run_id": "1f2e",
            "layout": "one process",
        }
    kept: Any = trainer.checkpoint_callback
    assert kept.best_model_path == str(tmp_path / "checkpoints" / "best.ckpt")


@pytest.mark.parametrize(
    ("every", "flags", "steps"),
    [
        (2, {"max_epochs": 2}, (2, 4, 6, 7, 8, 10, 12, 14)),
        (1, {"max_epochs": 2, "accumulate_grad_batches": 3}, (1, 2, 3, 4, 5, 6)),
    ],
)
def test_last_is_written_every_n_steps_once_and_at_an_epochs_end(
    tmp_path: Path, every: int, flags: dict[str, Any], steps: tuple[int, ...]
) -> None:
    trainer = fitted(tmp_path, checkpoints=Checkpoints(every_n_steps=every), limit_val_batches=0, **flags)
    assert BATCHES_AN_EPOCH == 7
    assert trainer.writes == [("last", step) for step in steps]


def test_last_waits_for_the_validation_that_follows(tmp_path: Path) -> None:
    """At step 4, and not at step 2, best comes first, so validation has been."""
    flags: dict[str, Any] = {"max_steps": 6, "val_check_interval": 4}
    trainer = fitted(tmp_path, checkpoints=Checkpoints(every_n_steps=2), scores=[1.0], **flags)
    assert trainer.writes == [("last", 2), ("best", 4), ("last", 4), ("last", 6), ("last", 6)]


@pytest.mark.parametrize("scores", [[float("nan"), 2.0, float("nan")], [2.0, float("inf"), 2.0]])
def test_best_is_the_first_finite_least(tmp_path: Path, scores: list[float]) -> None:
    fitted(tmp_path, scores=scores, max_epochs=3)
    assert epoch_of(tmp_path, "best") == scores.index(2.0)


@pytest.mark.parametrize("move", [False, True])
def test_a_resumed_fit_knows_its_best(tmp_path: Path, move: bool) -> None:
    """Also when its folder has moved."""
    fitted(folder := tmp_path / "run", scores=[1.0, 2.0], max_epochs=2)
    if move:
        folder = folder.rename(tmp_path / "moved")
    trainer = fitted(folder, scores=[1.5, 0.5], max_epochs=4, ckpt_path=last_of(folder))
    assert [name for name, _ in trainer.writes] == ["last", "best", "last"]
    assert epoch_of(folder, "best") == 3


def test_a_new_run_from_an_old_checkpoint_has_its_own_best_and_scripts_may_validate_it(tmp_path: Path) -> None:
    fitted(tmp_path / "old", scores=[1.0], max_epochs=1)
    fitted(tmp_path / "new", scores=[1.5], max_epochs=2, ckpt_path=last_of(tmp_path / "old"))
    assert sorted(os.listdir(tmp_path / "new" / "checkpoints")) == ["best.ckpt", "last.ckpt"]
    trainer = recorder(tmp_path / "new", Checkpoints())
    trainer.validate(TinyTask(), datamodule=TinyData(), ckpt_path=last_of(tmp_path / "new"), verbose=False)


def test_a_fast_run_and_a_validation_leave_nothing(tmp_path: Path) -> None:
    fitted(tmp_path, checkpoints=Checkpoints(every_n_steps=1), fast_dev_run=True)
    recorder(tmp_path, Checkpoints()).validate(TinyTask(), datamodule=TinyData(), verbose=False)
    assert not (tmp_path / "checkpoints").exists()


def test_validation_does_not_touch_the_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger may create a run when it is asked for its folder."""
    trainer = tiny_trainer(tmp_path)
    asked = property(lambda self: pytest.fail("it was asked"))
    monkeypatch.delattr(trainer.logger, "checkpoint_dir")
    monkeypatch.setattr(Diary, "checkpoint_dir", asked, raising=False)
    trainer.validate(TinyTask(), datamodule=TinyData(), verbose=False)
