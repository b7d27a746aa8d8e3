"""Lightning's callbacks, loggers, profilers, strategies and plugins, as its users write them: a fit that ends well is
opened by every verb, and what cannot be is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch.callbacks as lightning_callbacks
import pytest

from cli.conftest import Seqlab, write_text
from seqlab.tracking.runs import find_run

LM = [
    *("fit", "--config=lm/gru", "--data.path=text.txt", "--model.model.d_model=16", "--model.model.num_layers=1"),
    *("--data.seq_len=32", "--data.batch_size=4", "--experiment=parts", "--trainer.limit_train_batches=4"),
    *("--trainer.max_epochs=2", "--trainer.limit_val_batches=1", "--data.num_workers=0", "--run_name=run"),
]


def callback(name: str, **options: object) -> list[str]:
    return [f"--trainer.callbacks+={name}", *(f"--trainer.callbacks.{key}={value}" for key, value in options.items())]


def option(name: str, value: str, **options: object) -> list[str]:
    return [f"--trainer.{name}={value}", *(f"--trainer.{name}.{key}={given}" for key, given in options.items())]


def part(of: str, name: str, **options: object) -> list[str]:
    return [f"--trainer.{of}={json.dumps({'class_path': name, 'init_args': options})}"]


CPU = ["--trainer.accelerator=cpu", "--trainer.devices=1"]
OPENED = {
    "EarlyStopping": callback("EarlyStopping", monitor="val/loss", patience=1, mode="min", min_delta=0.1),
    "EarlyStopping/epoch": callback("EarlyStopping", monitor="train/loss", check_on_train_epoch_end="true"),
    "EarlyStopping/lenient": callback("EarlyStopping", monitor="val/los", strict="false"),
    "ModelCheckpoint": callback("ModelCheckpoint", monitor="val/loss", save_top_k=2, every_n_train_steps=1),
    "ModelCheckpoint/names": callback("ModelCheckpoint", filename="{epoch}-{val/loss:.2f}", save_last="true"),
    "ModelCheckpoint/step": callback(
        "ModelCheckpoint", monitor="step", mode="max", save_top_k=2, every_n_train_steps=1
    ),
    "ModelCheckpoint/folder": callback("ModelCheckpoint", dirpath="kept", filename="best", monitor="val/loss"),
    "ModelCheckpoint/here": callback("ModelCheckpoint", dirpath=".", train_time_interval="00:00:00:01"),
    "OnExceptionCheckpoint": callback("OnExceptionCheckpoint", dirpath="."),
    "StochasticWeightAveraging": callback("StochasticWeightAveraging", swa_lrs="1e-2"),
    "StochasticWeightAveraging/cpu": callback(
        "StochasticWeightAveraging",
        swa_lrs="[1e-2, 1e-2]",
        device="cpu",
        swa_epoch_start=1,
        annealing_strategy="linear",
    ),
    "WeightAveraging": callback("WeightAveraging", device="cpu", use_buffers="false"),
    "EMAWeightAveraging": callback("EMAWeightAveraging", decay=0.9, update_every_n_steps=2),
    "ModelPruning": callback("ModelPruning", pruning_fn="l1_unstructured"),
    "ModelPruning/local": callback(
        "ModelPruning", pruning_fn="random_unstructured", amount=0.2, use_global_unstructured="false", verbose=1
    ),
    "Timer": callback("Timer", duration="00:00:10:00"),
    "Timer/epochs": callback("Timer", duration="00:00:10:00", interval="epoch", verbose="false"),
    "RichProgressBar": callback("RichProgressBar", leave="true", refresh_rate=2),
    "ProgressBar": callback("ProgressBar"),
    "TQDMProgressBar": callback("TQDMProgressBar", refresh_rate=10),
    "RichModelSummary": callback("RichModelSummary", max_depth=2),
    "ModelSummary": callback("ModelSummary", max_depth=-1),
    "LearningRateMonitor": callback("LearningRateMonitor", logging_interval="step", log_momentum="true"),
    "DeviceStatsMonitor": callback("DeviceStatsMonitor", cpu_stats="true"),
    "GradientAccumulationScheduler": callback("GradientAccumulationScheduler", scheduling="{0: 2}"),
    "BatchSizeFinder": callback("BatchSizeFinder", max_trials=1, steps_per_trial=1),
    "LearningRateFinder": callback("LearningRateFinder", num_training_steps=10),
    "LambdaCallback": callback("LambdaCallback"),
    "BasePredictionWriter": callback("BasePredictionWriter", write_interval="epoch"),
    "Callback": callback("Callback"),
    "Checkpoint": callback("Checkpoint"),
    "two callbacks": [*callback("LearningRateMonitor"), *callback("EarlyStopping", monitor="val/loss")],
    "SimpleProfiler": option("profiler", "SimpleProfiler", dirpath="profiles", filename="fit"),
    "AdvancedProfiler": option("profiler", "advanced"),
    "PassThroughProfiler": option("profiler", "PassThroughProfiler"),
    "SingleDeviceStrategy": part("strategy", "SingleDeviceStrategy", device="cpu"),
    "DDPStrategy": [*part("strategy", "DDPStrategy", find_unused_parameters=True, process_group_backend="gloo"), *CPU],
    "LightningEnvironment": option("plugins", "LightningEnvironment"),
    "MixedPrecision": option("plugins", "MixedPrecision", precision="bf16-mixed", device="cpu"),
    "DoublePrecision": option("plugins", "DoublePrecision"),
    "TorchSyncBatchNorm": option("plugins", "TorchSyncBatchNorm"),
}
REFUSED = {
    "ModelCheckpoint/elsewhere": (callback("ModelCheckpoint", dirpath="/tmp/kept"), "dirpath; a run writes in its own"),
    "ModelCheckpoint/above": (
        callback("ModelCheckpoint", dirpath="../kept"),
        "dirpath; a run writes in its own folder",
    ),
    "ModelCheckpoint/metric": (callback("ModelCheckpoint", monitor="val/los"), "there are: val/loss"),
    "EarlyStopping/metric": (callback("EarlyStopping", monitor="val/los"), "there are: val/loss"),
    "BackboneFinetuning": (callback("BackboneFinetuning"), "BackboneFinetuning: AttributeError: "),
    "BaseFinetuning": (callback("BaseFinetuning"), "BaseFinetuning: NotImplementedError: "),
    "ModelPruning/masks": (
        callback("ModelPruning", pruning_fn="l1_unstructured", make_pruning_permanent="false"),
        "make_pruning_permanent false",
    ),
    "ModelPruning": (callback("ModelPruning", pruning_fn="nothing"), "`pruning_fn` nothing isn't available"),
    "SpikeDetection": (callback("SpikeDetection"), "SpikeDetection cannot be restored from a checkpoint"),
    "ThroughputMonitor": (callback("ThroughputMonitor"), "batch_size_fn"),
    "Timer": (callback("Timer", duration="soon"), "soon"),
    "DeepSpeedStrategy": (part("strategy", "DeepSpeedStrategy"), "DeepSpeedStrategy"),
    "ModelParallelStrategy": (part("strategy", "ModelParallelStrategy"), "ModelParallelStrategy"),
    "TorchCheckpointIO": (option("plugins", "TorchCheckpointIO"), "TorchCheckpointIO"),
    "AsyncCheckpointIO": (option("plugins", "AsyncCheckpointIO"), "multiple values for CheckpointIO"),
}
QUICK = ("ModelCheckpoint/folder", "StochasticWeightAveraging", "Timer")


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    return inside(tmp_path)


def test_every_one_of_lightnings_callbacks_is_tried() -> None:
    assert set(lightning_callbacks.__all__) <= {name.split("/")[0] for name in (*OPENED, *REFUSED)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in OPENED])
@pytest.mark.filterwarnings("ignore")  # Lightning's, of its own parts; of torch's exporter
def test_a_fit_that_ends_well_is_opened(name: str, quick: Seqlab) -> None:
    said = quick(*LM, *OPENED[name]).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("Run run (")]
    assert "/artifacts/checkpoints/best.ckpt · next: seqlab export run --out" in line
    quick("validate", "run", "--trainer.limit_val_batches=1")
    if name not in QUICK:
        quick("export", "run", "--out=bundle")
    assert "best checkpoint" in quick("resume", "run", "--trainer.max_epochs=3").stdout
    assert find_run("run").status == "FINISHED"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if "/" in n else pytest.mark.slow) for n in REFUSED])
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_is_a_sentence(name: str, quick: Seqlab) -> None:
    given, reason = REFUSED[name]
    line = quick(*LM, *given, code=2).stderr.splitlines()[-1]
    assert line.startswith("seqlab: ") and reason in line


def test_a_sweep_is_refused_as_its_fits_would_be(quick: Seqlab, tmp_path: Path) -> None:
    sweep = ["sweep", "--vary=model.lr=0.1,0.2", "--trials=1", *LM[1:-1], "--", *REFUSED["ModelCheckpoint/above"][0]]
    (line,) = quick(*sweep, code=2).stderr.splitlines()
    assert line.startswith("seqlab: a run of this config could not be loaded again: ") and "'../kept'" in line
    assert not (tmp_path / "mlruns").exists()
