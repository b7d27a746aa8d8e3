"""Lightning's callbacks, loggers, profilers, strategies and plugins, as its users write them: a fit that ends well is
opened by every verb, and what cannot be is refused in a sentence."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path
from unittest.mock import MagicMock

import lightning.pytorch.callbacks as lightning_callbacks
import pytest
import yaml
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.loggers import wandb as lightning_wandb

from cli.conftest import TINY, Seqlab
from seqlab import tasks
from seqlab.callbacks.beside import logged_names
from seqlab.config.configs import load_short_yaml, resolve_names
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run

GRU = ["fit", "--config=lm/gru", *TINY]
CHECKPOINT = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=1"]


def test_classes_of_the_user_may_log_anything() -> None:
    class Own(tasks.LanguageModeling):
        """Logs whatever it likes."""

    class Logs(Callback):
        """Logs whatever it likes."""

    known = logged_names(tasks.Classification, [EarlyStopping])
    assert {"val/accuracy", "val/f1", "val/accuracy_by_length/*", "train/grad_norm", "lr-*"} <= set(known)
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


LM = [
    *("fit", "--config=lm/gru", "--data.path=text.txt", "--model.model.d_model=16", "--model.model.num_layers=1"),
    *("--data.seq_len=32", "--data.batch_size=4", "--experiment=parts", "--trainer.limit_train_batches=4"),
    *("--trainer.max_epochs=2", "--trainer.limit_val_batches=1", "--data.num_workers=0", "--run_name=run"),
]


def callbacks(*given: str) -> list[str]:
    """Options of callbacks, each a class and its arguments."""
    words = [shlex.split(one) for one in given]
    options = ([f"+={name}", *(f".{argument}" for argument in arguments)] for name, *arguments in words)
    return [f"--trainer.callbacks{option}" for of_one in options for option in of_one]


def option(name: str, value: str, **options: object) -> list[str]:
    return [f"--trainer.{name}={value}", *(f"--trainer.{name}.{key}={given}" for key, given in options.items())]


def strategy(name: str, **options: object) -> list[str]:
    return option("strategy", json.dumps({"class_path": name, "init_args": options}))


OPENED = {
    "EarlyStopping": callbacks("EarlyStopping monitor=val/loss patience=1 mode=min min_delta=0.1"),
    "EarlyStopping/epoch": callbacks("EarlyStopping monitor=train/loss check_on_train_epoch_end=true"),
    "EarlyStopping/lenient": callbacks("EarlyStopping monitor=val/los strict=false"),
    "ModelCheckpoint": callbacks("ModelCheckpoint monitor=val/loss save_top_k=2 every_n_train_steps=1"),
    "ModelCheckpoint/names": callbacks("ModelCheckpoint filename={epoch}-{val/loss:.2f} save_last=true"),
    "ModelCheckpoint/step": callbacks("ModelCheckpoint monitor=step mode=max save_top_k=2 every_n_train_steps=1"),
    "ModelCheckpoint/folder": callbacks("ModelCheckpoint dirpath=kept filename=best monitor=val/loss"),
    "ModelCheckpoint/here": callbacks(
        "ModelCheckpoint dirpath=. train_time_interval=00:00:00:01", "OnExceptionCheckpoint dirpath=."
    ),
    "averaged": callbacks("WeightAveraging device=cpu use_buffers=false"),
    "averaged/ema": callbacks("EMAWeightAveraging decay=0.9 update_every_n_steps=2"),
    "averaged/swa": callbacks("StochasticWeightAveraging swa_lrs=1e-2 device=cpu swa_epoch_start=1"),
    "ModelPruning": callbacks("ModelPruning pruning_fn=l1_unstructured"),
    "watchers": callbacks(
        "Timer duration=00:00:10:00",
        "RichProgressBar leave=true refresh_rate=2",
        "RichModelSummary max_depth=2",
        "LearningRateMonitor logging_interval=step log_momentum=true",
        "DeviceStatsMonitor cpu_stats=true",
        "LambdaCallback",
        "BasePredictionWriter write_interval=epoch",
        "EarlyStopping monitor=val/loss",
    ),
    "other watchers": callbacks(
        "Timer duration=00:00:10:00 interval=epoch verbose=false",
        "TQDMProgressBar refresh_rate=10",
        "ModelSummary max_depth=-1",
        "GradientAccumulationScheduler scheduling='{0: 2}'",
        "Callback",
        "Checkpoint",
    ),
    "ProgressBar": callbacks("ProgressBar"),
    "finders": callbacks("BatchSizeFinder max_trials=1 steps_per_trial=1", "LearningRateFinder num_training_steps=10"),
    "SimpleProfiler": option("profiler", "SimpleProfiler", dirpath="profiles", filename="fit"),
    "AdvancedProfiler": option("profiler", "advanced"),
    "SingleDeviceStrategy": strategy("SingleDeviceStrategy", device="cpu"),
    "DDPStrategy": [
        *strategy("DDPStrategy", find_unused_parameters=True, process_group_backend="gloo"),
        *("--trainer.accelerator=cpu", "--trainer.devices=1"),
    ],
    "LightningEnvironment": option("plugins", "LightningEnvironment"),
    "MixedPrecision": option("plugins", "MixedPrecision", precision="bf16-mixed", device="cpu"),
    "DoublePrecision": option("plugins", "DoublePrecision"),
    "TorchSyncBatchNorm": option("plugins", "TorchSyncBatchNorm"),
}
EXPORTED = ("averaged", "ModelPruning", "DDPStrategy", "DoublePrecision", "MixedPrecision")
"""Beginnings of the names of those that change what a checkpoint holds."""
ABOVE = callbacks("ModelCheckpoint dirpath=../kept")
MASKS = "ModelPruning pruning_fn=l1_unstructured make_pruning_permanent=false"
REFUSED = {
    "ModelCheckpoint/elsewhere": (callbacks("ModelCheckpoint dirpath=/tmp/kept"), "dirpath; a run writes in its own"),
    "ModelCheckpoint/above": (ABOVE, "dirpath; a run writes in its own folder"),
    "ModelCheckpoint/metric": (callbacks("ModelCheckpoint monitor=val/los"), "there are: val/loss"),
    "EarlyStopping/metric": (callbacks("EarlyStopping monitor=val/los"), "there are: val/loss"),
    "EarlyStopping/unseen": (
        ["--trainer.limit_val_batches=0", *callbacks("EarlyStopping monitor=val/loss")],
        "seqlab: EarlyStopping monitors val/loss, which nothing logs; there are: train/loss, train/grad_norm",
    ),
    "BackboneFinetuning": (callbacks("BackboneFinetuning"), "BackboneFinetuning: AttributeError: "),
    "BaseFinetuning": (callbacks("BaseFinetuning"), "BaseFinetuning: NotImplementedError: "),
    "ModelPruning/masks": (callbacks(MASKS), "make_pruning_permanent false"),
    "ModelPruning": (callbacks("ModelPruning pruning_fn=nothing"), "`pruning_fn` nothing isn't available"),
    "SpikeDetection": (callbacks("SpikeDetection"), "SpikeDetection cannot be restored from a checkpoint"),
    "ThroughputMonitor": (callbacks("ThroughputMonitor"), "batch_size_fn"),
    "Timer": (callbacks("Timer duration=soon"), "soon"),
    "DeepSpeedStrategy": (strategy("DeepSpeedStrategy"), "DeepSpeedStrategy"),
    "ModelParallelStrategy": (strategy("ModelParallelStrategy"), "ModelParallelStrategy"),
    "TorchCheckpointIO": (option("plugins", "TorchCheckpointIO"), "TorchCheckpointIO"),
    "AsyncCheckpointIO": (option("plugins", "AsyncCheckpointIO"), "multiple values for CheckpointIO"),
}
FAST = (
    *("ModelCheckpoint/elsewhere", "ModelCheckpoint/metric", "EarlyStopping/metric", "EarlyStopping/unseen"),
    "ModelPruning/masks",
)


def test_every_one_of_lightnings_callbacks_is_tried() -> None:
    given = [arg for args in (*OPENED.values(), *(args for args, _ in REFUSED.values())) for arg in args]
    assert set(lightning_callbacks.__all__) <= {arg.partition("callbacks+=")[2] for arg in given}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENED)
@pytest.mark.filterwarnings("ignore")  # Lightning's, of its own parts; of torch's exporter
def test_a_fit_that_ends_well_is_opened(name: str, quick: Seqlab) -> None:
    said = quick(*LM, *OPENED[name]).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("Run run (")]
    assert "/artifacts/checkpoints/best.ckpt · next: seqlab export run --out" in line
    artifacts = find_run("run").artifacts
    assert sorted(path.name for path in (artifacts / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert not name.startswith("ModelCheckpoint") or list((artifacts / "callbacks").rglob("*.ckpt"))
    quick("validate", "run", "--trainer.limit_val_batches=1")
    assert load_run("run").config == find_run("run").config
    if name.startswith(EXPORTED):
        quick("export", "run", "--out=bundle")
    assert "best checkpoint" in quick("resume", "run", "--trainer.max_epochs=3").stdout
    assert find_run("run").status == "FINISHED"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in REFUSED])
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_is_a_sentence(name: str, quick: Seqlab) -> None:
    given, reason = REFUSED[name]
    line = quick(*LM, *given, code=2).stderr.splitlines()[-1]
    assert line.startswith("seqlab: ") and reason in line


def test_a_sweep_is_refused_as_its_fits_would_be(quick: Seqlab, tmp_path: Path) -> None:
    sweep = ["sweep", "--vary=model.lr=0.1,0.2", "--trials=1", *LM[1:-1], "--", *ABOVE]
    (line,) = quick(*sweep, code=2).stderr.splitlines()
    assert line.startswith("seqlab: a run of this config could not be loaded again: ") and "'../kept'" in line
    assert not (tmp_path / "mlruns").exists()
