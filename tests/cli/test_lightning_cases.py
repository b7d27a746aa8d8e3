"""Callbacks as strangers gave them, and broke a fit: what each has to give."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import Callback, EarlyStopping

from cli.conftest import TINY, Seqlab, send, write_text
from seqlab import tasks
from seqlab.callbacks.beside import logged_names
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store

GOOD, BAD = "a fine and moving film", "a dull and empty film"
FIT = [
    *("fit", "--config=classify/bigru", "--data.train=reviews.txt", "--model.model.encoder.d_model=16"),
    *("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--run_name=base"),
]
SWA = ["--trainer.callbacks+=StochasticWeightAveraging", "--trainer.callbacks.swa_lrs=1e-2"]
STOP = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/los"]
UNSEEN = ["--trainer.limit_val_batches=0", *STOP[:1], "--trainer.callbacks.monitor=val/loss"]
CHECKPOINT = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=1"]


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    lines = [f"{label} {text} {n}\n" for n in range(20) for label, text in (("pos", GOOD), ("neg", BAD))]
    (tmp_path / "reviews.txt").write_text("".join(lines), encoding="utf-8")
    return inside(tmp_path)


@pytest.mark.slow
def test_a_metric_that_nobody_logs_is_named_with_those_there_are(quick: Seqlab) -> None:
    quick(*FIT)
    more = ("resume", "base", "--trainer.max_epochs=2")
    for command, runs in ((FIT, 1), (more, 2)):
        line = quick(*command, *STOP, code=2).stderr.splitlines()[-1]
        assert line == (
            "seqlab: EarlyStopping monitors val/los, which nothing logs; there are: val/loss, val/accuracy, val/f1, "
            "val/accuracy_by_length/*, train/loss, train/grad_norm, lr-*"
        )
        assert len(search(Store())) == runs, "refused before there is a run"
        line = quick(*command, *UNSEEN, code=2).stderr.splitlines()[-1]
        assert line.startswith("seqlab: EarlyStopping") and "train/loss" in line


@pytest.mark.slow
def test_a_monitor_that_is_never_looked_at_is_refused_at_the_end(quick: Seqlab) -> None:
    line = quick("fit", "--config=lm/gru", *TINY, *UNSEEN, code=2).stderr.splitlines()[-1]
    assert line == (
        "seqlab: EarlyStopping monitors val/loss, which nothing logs; there are: train/loss, train/grad_norm"
    )


def test_classes_of_the_user_may_log_anything() -> None:
    class Own(tasks.LanguageModeling):
        """Logs whatever it likes."""

    class Logs(Callback):
        """Logs whatever it likes."""

    known = logged_names(tasks.LanguageModeling, [EarlyStopping])
    assert {"val/bits_per_char", "val/loss_by_position/*", "train/loss"} <= set(known)
    assert logged_names(Own, []) == logged_names(tasks.LanguageModeling, [EarlyStopping, Logs]) == []
    named = [getattr(tasks, name) for name in tasks.__all__ if name != "ScheduledSampling"]
    assert all("val/loss" in logged_names(task, []) for task in named)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:SWA is currently", "ignore:Swapping scheduler")
def test_averaged_weights_are_read_again_and_go_on(quick: Seqlab) -> None:
    quick(*FIT, *SWA, "--trainer.callbacks.device=cpu", "--trainer.max_epochs=4")
    assert "best.ckpt" in quick("resume", "base", "--trainer.max_epochs=6").stdout
    assert find_run("base").status == "FINISHED"


@pytest.mark.slow
def test_the_closing_line_is_of_the_run_whatever_checkpoints_there_are(quick: Seqlab) -> None:
    theirs = [*CHECKPOINT, "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.save_top_k=2"]
    said = quick(*FIT, "--trainer.max_epochs=2", *theirs).stdout
    assert re.fullmatch(r"Run base \(\w{8}\) · best checkpoint \S+/checkpoints/best.ckpt · next: .+", said.strip())
    run = find_run("base")
    assert run.checkpoint is not None and run.checkpoint.name == "best.ckpt"
    assert sorted(path.name for path in (run.artifacts / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert list((run.artifacts / "callbacks").glob("epoch=*.ckpt"))


@pytest.mark.slow
def test_folders_are_in_the_run_and_an_evaluation_writes_in_none(quick: Seqlab, tmp_path: Path) -> None:
    theirs = [*CHECKPOINT, "--trainer.callbacks.dirpath=kept", "--trainer.callbacks.save_last=true"]
    failing = ["--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath=kept"]
    quick("fit", "--config=lm/gru", *TINY, *theirs, *failing, "--run_name=run")
    artifacts = find_run("run").artifacts
    assert (artifacts / "callbacks" / "kept" / "last.ckpt").is_file()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "on_exception.ckpt").touch()
    quick("validate", "run", "--trainer.limit_val_batches=1")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["on_exception.ckpt"]


@pytest.mark.slow
def test_a_stopped_fit_names_its_own_last_checkpoint(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    rare = [*CHECKPOINT[:1], "--trainer.callbacks.every_n_train_steps=100000"]
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, 1)
        said = quick("fit", "--config=lm/gru", *TINY, *rare, code=143).stdout
    found = re.search(r"last checkpoint (\S+/last.ckpt) of step 2 · next: seqlab (resume \w{8})$", said.strip())
    assert found is not None and Path(found[1]).is_file()
    assert "best checkpoint" in quick(*found[2].split()).stdout


@pytest.mark.slow
def test_a_bar_of_lightnings_takes_the_place_of_ours(quick: Seqlab) -> None:
    said = quick("fit", "--config=lm/gru", *TINY, "--trainer.callbacks+=TQDMProgressBar", "--run_name=bar")
    assert "Epoch 0: 100%" in said.stdout + said.stderr and "Run bar (" in said.stdout
    said = quick("validate", "bar", "--trainer.enable_progress_bar=false", "--trainer.limit_val_batches=1")
    assert "Validation" not in said.stderr


@pytest.mark.filterwarnings("ignore:.*barebones")
def test_barebones_keeps_nothing(quick: Seqlab, tmp_path: Path) -> None:
    quick("fit", "--config=lm/gru", *TINY, "--trainer.barebones=true")
    assert not list(tmp_path.rglob("*.ckpt")) and not (tmp_path / "mlruns").exists()
