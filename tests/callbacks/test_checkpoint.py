"""Checkpoints that a fit leaves: their names, when they are written, and their content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from callbacks.tiny_fit import BATCHES_AN_EPOCH, Diary, TinyData, TinyTask, tiny_trainer
from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint


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
    """Notes each write as (name, optimiser step, validations before it)."""

    callbacks: list[L.Callback]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.writes: list[tuple[str, int]] = []

    def save_checkpoint(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        self.writes.append((Path(filepath).stem, self.global_step))
        super().save_checkpoint(filepath, *args, **kwargs)


def recorder(folder: Path, checkpoints: Checkpoints, **flags: Any) -> Recorder:
    return Recorder(
        logger=Diary(folder),
        callbacks=[checkpoints],
        plugins=[AtomicCheckpointIO()],
        log_every_n_steps=1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        **flags,
    )


def epoch_of(path: Path) -> int:
    epoch: int = read_checkpoint(path)["epoch"]
    return epoch


def test_best_and_last_are_left_with_what_seqlab_adds(tmp_path: Path) -> None:
    config = {"model": {"lr": 1e-3, "betas": [0.9, 0.99], "mixer": None}}
    trainer = recorder(tmp_path, Checkpoints(config=config), max_epochs=3)
    data = TinyData()
    data.tokenizer = CharacterStub()  # type: ignore[attr-defined]
    data.vocab_size = 2  # type: ignore[attr-defined]
    trainer.fit(Scored([3.0, 1.0, 2.0]), datamodule=data)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["best.ckpt", "last.ckpt"]
    assert epoch_of(tmp_path / "checkpoints" / "best.ckpt") == 1
    assert epoch_of(tmp_path / "checkpoints" / "last.ckpt") == 2
    for name in ("best", "last"):
        added = read_checkpoint(tmp_path / "checkpoints" / f"{name}.ckpt")["seqlab"]
        tokenizers = {"tokenizer": {"characters": "ab"}, "source_tokenizer": None}
        assert added == {
            "config": config,
            "labels": None,
            "told": {"vocab_size": 2},
            **tokenizers,
            "run_id": "1f2e",
            "layout": "one process",
        }
    assert trainer.checkpoint_callback is not None
    assert trainer.checkpoint_callback.best_model_path == str(tmp_path / "checkpoints" / "best.ckpt")  # type: ignore[attr-defined]


class CharacterStub:
    def to_dict(self) -> dict[str, str]:
        return {"characters": "ab"}


def test_last_is_written_every_n_steps_but_for_an_epochs_last_and_at_its_end(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(every_n_steps=2), max_epochs=2, limit_val_batches=0)
    trainer.fit(TinyTask(), datamodule=TinyData())
    assert BATCHES_AN_EPOCH == 7
    assert trainer.writes == [("last", step) for step in (2, 4, 6, 7, 8, 10, 12, 14)]


def test_last_is_written_once_a_step_that_is_accumulated(tmp_path: Path) -> None:
    flags = {"max_epochs": 2, "limit_val_batches": 0, "accumulate_grad_batches": 3}
    trainer = recorder(tmp_path, Checkpoints(every_n_steps=1), **flags)
    trainer.fit(TinyTask(), datamodule=TinyData())
    assert trainer.writes == [("last", step) for step in (1, 2, 3, 4, 5, 6)]


def test_last_waits_for_the_validation_that_follows(tmp_path: Path) -> None:
    """At step 4, and not at step 2, best comes first, so validation has been."""
    trainer = recorder(tmp_path, Checkpoints(every_n_steps=2), max_steps=6, val_check_interval=4)
    trainer.fit(Scored([1.0]), datamodule=TinyData())
    assert trainer.writes == [("last", 2), ("best", 4), ("last", 4), ("last", 6), ("last", 6)]


@pytest.mark.parametrize("scores", [[float("nan"), 2.0, float("nan")], [2.0, float("inf"), 2.0]])
def test_best_is_the_first_finite_least(tmp_path: Path, scores: list[float]) -> None:
    recorder(tmp_path, Checkpoints(), max_epochs=3).fit(Scored(scores), datamodule=TinyData())
    assert epoch_of(tmp_path / "checkpoints" / "best.ckpt") == scores.index(2.0)


@pytest.mark.parametrize("move", [False, True])
def test_a_resumed_fit_knows_its_best(tmp_path: Path, move: bool) -> None:
    """Also when its folder has moved."""
    recorder(tmp_path / "run", Checkpoints(), max_epochs=2).fit(Scored([1.0, 2.0]), datamodule=TinyData())
    folder = tmp_path / "run"
    if move:
        folder = tmp_path / "moved"
        shutil.move(tmp_path / "run", folder)
    trainer = recorder(folder, Checkpoints(), max_epochs=4)
    last = str(folder / "checkpoints" / "last.ckpt")
    trainer.fit(Scored([1.5, 0.5]), datamodule=TinyData(), ckpt_path=last)
    assert [name for name, _ in trainer.writes] == ["last", "best", "last"]
    assert epoch_of(folder / "checkpoints" / "best.ckpt") == 3


def test_a_new_run_from_an_old_checkpoint_has_its_own_best(tmp_path: Path) -> None:
    recorder(tmp_path / "old", Checkpoints(), max_epochs=1).fit(Scored([1.0]), datamodule=TinyData())
    trainer = recorder(tmp_path / "new", Checkpoints(), max_epochs=2)
    last = str(tmp_path / "old" / "checkpoints" / "last.ckpt")
    trainer.fit(Scored([1.5]), datamodule=TinyData(), ckpt_path=last)
    assert sorted(os.listdir(tmp_path / "new" / "checkpoints")) == ["best.ckpt", "last.ckpt"]


def test_a_checkpoint_can_be_validated_and_tested(tmp_path: Path) -> None:
    """With this callback, as in a script that goes on after the fit."""
    recorder(tmp_path, Checkpoints(), max_epochs=1).fit(TinyTask(), datamodule=TinyData())
    last = str(tmp_path / "checkpoints" / "last.ckpt")
    recorder(tmp_path, Checkpoints()).validate(TinyTask(), datamodule=TinyData(), ckpt_path=last, verbose=False)


def test_a_fast_run_and_a_validation_leave_nothing(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(every_n_steps=1), fast_dev_run=True)
    trainer.fit(TinyTask(), datamodule=TinyData())
    recorder(tmp_path, Checkpoints()).validate(TinyTask(), datamodule=TinyData(), verbose=False)
    assert not (tmp_path / "checkpoints").exists()


def test_validation_does_not_touch_the_logger(tmp_path: Path) -> None:
    """A logger may create a run when it is asked for its folder."""

    class Touchy(Diary):
        @property
        def checkpoint_dir(self) -> Path:
            raise AssertionError

        @checkpoint_dir.setter
        def checkpoint_dir(self, folder: Path) -> None:
            """Ignored."""

    trainer = tiny_trainer(tmp_path)
    trainer.loggers = [Touchy(tmp_path)]
    trainer.validate(TinyTask(), datamodule=TinyData(), verbose=False)


def test_the_whole_checkpoint_is_plain(tmp_path: Path) -> None:
    """Tensors, numbers, strings, lists and dicts alone."""

    def check(value: Any, where: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                assert isinstance(key, str | int), where
                check(inner, f"{where}.{key}")
        elif isinstance(value, list | tuple):
            for inner in value:
                check(inner, where)
        else:
            assert value is None or type(value) in (str, int, float, bool, torch.Tensor), where

    tiny_trainer(tmp_path, max_epochs=1, precision="bf16-mixed").fit(TinyTask(), datamodule=TinyData())
    check(read_checkpoint(tmp_path / "checkpoints" / "last.ckpt"), "checkpoint")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="--checkpoint_every must be at least 1, got 0"):
        Checkpoints(every_n_steps=0)
