"""Lightning's callbacks, profilers, strategies and plugins, as its users write them: a fit that ends well is opened by
every verb, and what cannot be is refused in a sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import lightning.pytorch.callbacks as lightning_callbacks
import pytest

from cli.conftest import Seqlab
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run

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
    "averaged/swa": callbacks("StochasticWeightAveraging swa_lrs=1e-2"),
    "averaged/swa on cpu": callbacks(
        "StochasticWeightAveraging swa_lrs='[1e-2, 1e-2]' device=cpu swa_epoch_start=1 annealing_strategy=linear"
    ),
    "ModelPruning": callbacks("ModelPruning pruning_fn=l1_unstructured"),
    "ModelPruning/local": callbacks(
        "ModelPruning pruning_fn=random_unstructured amount=0.2 use_global_unstructured=false verbose=1"
    ),
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
    "PassThroughProfiler": option("profiler", "PassThroughProfiler"),
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
FAST = ("ModelCheckpoint/elsewhere", "ModelCheckpoint/metric", "EarlyStopping/metric", "ModelPruning/masks")


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
