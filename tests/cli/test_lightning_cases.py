"""Callbacks and loggers of Lightning as its users gave them, and broke a fit: what each has to give."""

from __future__ import annotations

import csv
import re
import signal
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.loggers import wandb as lightning_wandb

from cli.conftest import TINY, Seqlab, send
from seqlab import tasks
from seqlab.callbacks.beside import logged_names
from seqlab.config.configs import load_short_yaml, resolve_names
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store

FIT = [
    *("fit", "--config=classify/bigru", "--data.train=reviews.txt", "--model.model.encoder.d_model=16"),
    *("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--run_name=base"),
]
GRU = ["fit", "--config=lm/gru", *TINY]
STOP = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/los"]
UNSEEN = ["--trainer.limit_val_batches=0", *STOP[:1], "--trainer.callbacks.monitor=val/loss"]
CHECKPOINT = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=1"]


@pytest.fixture(autouse=True)
def _reviews(quick: Seqlab, tmp_path: Path) -> None:
    lines = [f"{label} a film {n}\n" for n in range(20) for label in ("pos fine", "neg dull")]
    (tmp_path / "reviews.txt").write_text("".join(lines), encoding="utf-8")


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
    line = quick(*GRU, *UNSEEN, code=2).stderr.splitlines()[-1]
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
def test_folders_are_in_the_run_and_an_evaluation_writes_in_none(quick: Seqlab, tmp_path: Path) -> None:
    theirs = [*CHECKPOINT, "--trainer.callbacks.dirpath=kept", "--trainer.callbacks.save_last=true"]
    failing = ["--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath=kept"]
    quick(*GRU, *theirs, *failing, "--run_name=run")
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
        said = quick(*GRU, *rare, code=143).stdout
    found = re.search(r"last checkpoint (\S+/last.ckpt) of step 2 · next: seqlab (resume \w{8})$", said.strip())
    assert found is not None and Path(found[1]).is_file()
    assert "best checkpoint" in quick(*found[2].split()).stdout


@pytest.mark.slow
def test_a_bar_of_lightnings_takes_the_place_of_ours(quick: Seqlab) -> None:
    said = quick(*GRU, "--trainer.callbacks+=TQDMProgressBar", "--run_name=bar")
    assert "Epoch 0: 100%" in said.stdout + said.stderr and "Run bar (" in said.stdout
    said = quick("validate", "bar", "--trainer.enable_progress_bar=false", "--trainer.limit_val_batches=1")
    assert "Validation" not in said.stderr


@pytest.mark.filterwarnings("ignore:.*barebones")
def test_barebones_keeps_nothing(quick: Seqlab, tmp_path: Path) -> None:
    quick(*GRU, "--trainer.barebones=true")
    assert not list(tmp_path.rglob("*.ckpt")) and not (tmp_path / "mlruns").exists()


LOGGED = [*GRU, "--run_name=run", "--trainer.log_every_n_steps=1"]


@pytest.mark.slow
@pytest.mark.parametrize("given", [["--trainer.logger=csv"], ["--trainer.logger+=CSVLogger"]])
def test_a_logger_goes_beside_mlflow(given: list[str], quick: Seqlab, tmp_path: Path) -> None:
    quick(*LOGGED, *given, "--trainer.logger.save_dir=csv", "--trainer.logger.name=mine")
    (folder,) = (tmp_path / "csv" / "mine").iterdir()
    with (folder / "metrics.csv").open() as file:
        logged = [row["val/loss"] for row in csv.DictReader(file) if row["val/loss"]]
    run = find_run("run")
    assert [float(value) for value in logged] == pytest.approx([value for _, value in run.history("val/loss")])
    assert yaml.safe_load((folder / "hparams.yaml").read_text())["data"]["init_args"]["seq_len"] == 16
    assert run.config["trainer"]["logger"] is None
    quick("resume", "run", "--trainer.max_steps=6")
    assert "run" in quick("compare").stdout


@pytest.mark.slow
def test_wandb_by_its_name(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package, which is not installed here."""
    stub = MagicMock(run=None, id="1")
    stub.init.return_value = stub
    stub.sdk.lib.RunDisabled = stub.wandb_run.Run = MagicMock
    monkeypatch.setattr(lightning_wandb, "_WANDB_AVAILABLE", True)
    for name, module in {"": stub, ".sdk": stub.sdk, ".sdk.lib": stub.sdk.lib, ".wandb_run": stub.wandb_run}.items():
        monkeypatch.setitem(sys.modules, f"wandb{name}", module)
    quick(*LOGGED, "--trainer.logger", "wandb", "--trainer.logger.project=sequences")
    assert stub.init.call_args.kwargs["project"] == "sequences"
    (config,) = stub.config.update.call_args.args
    assert config["model"]["class_path"].endswith("LanguageModeling")
    logged = [call.args[0] for call in stub.log.call_args_list]
    assert sum("val/loss" in metrics for metrics in logged) == len(find_run("run").history("val/loss")) == 2
    assert any("perf/tokens_per_s" in metrics and "lr" in metrics for metrics in logged)


@pytest.mark.parametrize(
    ("given", "package"),
    [
        (["--trainer.logger=wandb"], "wandb"),
        (["--trainer.logger+=TensorBoardLogger", "--trainer.logger.save_dir=tb"], "tensorboard"),
        pytest.param(["--trainer.logger", "comet"], "comet", marks=pytest.mark.slow),
    ],
)
def test_a_package_that_is_missing_is_named_before_there_is_a_run(
    given: list[str], package: str, quick: Seqlab, tmp_path: Path
) -> None:
    (line,) = quick(*LOGGED, *given, code=2).stderr.splitlines()
    assert line.startswith("seqlab: ") and package in line and "pip install" in line
    assert not (tmp_path / "mlruns").exists()


def test_names_of_packages_stand_for_classes_in_a_config_too() -> None:
    (arg,) = resolve_names(["--trainer.logger+=csv"])
    assert load_short_yaml(arg.partition("+=")[2]) == {"class_path": "CSVLogger", "init_args": {"save_dir": "."}}
    read = load_short_yaml("trainer: {logger: [wandb, {class_path: CSVLogger, save_dir: logs}]}")["trainer"]["logger"]
    assert read == [{"class_path": "WandbLogger"}, {"class_path": "CSVLogger", "init_args": {"save_dir": "logs"}}]
    for given in (["--trainer.logger=[csv, wandb]"], ["--trainer.logger", '["csv", "wandb"]']):
        *_, value = resolve_names(given)
        csv, wandb = load_short_yaml(value.removeprefix("--trainer.logger="))
        assert (csv["class_path"], wandb["class_path"]) == ("CSVLogger", "WandbLogger")
    assert resolve_names(["--trainer.logger=[", "--trainer.logger", "false"])[::2] == ["--trainer.logger=[", "false"]
    assert load_short_yaml("trainer: {logger: false}") == {"trainer": {"logger": False}}
