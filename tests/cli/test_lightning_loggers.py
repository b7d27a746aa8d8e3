"""Loggers as LightningCLI's users write them: beside MLflow, and never in its place."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from lightning.pytorch.loggers import wandb as lightning_wandb

from cli.conftest import TINY, Seqlab, write_text
from seqlab.config.configs import load_short_yaml, resolve_names
from seqlab.tracking.runs import find_run

FIT = ["fit", "--config=lm/gru", *TINY, "--run_name=run", "--trainer.log_every_n_steps=1"]


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    return inside(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("given", [["--trainer.logger=csv"], ["--trainer.logger+=CSVLogger"]])
def test_a_logger_goes_beside_mlflow(given: list[str], quick: Seqlab, tmp_path: Path) -> None:
    quick(*FIT, *given, "--trainer.logger.save_dir=csv", "--trainer.logger.name=mine")
    (folder,) = (tmp_path / "csv" / "mine").iterdir()
    with (folder / "metrics.csv").open() as file:
        logged = [row["val/loss"] for row in csv.DictReader(file) if row["val/loss"]]
    run = find_run("run")
    assert [float(value) for value in logged] == pytest.approx([value for _, value in run.history("val/loss")])
    assert yaml.safe_load((folder / "hparams.yaml").read_text())["data"]["init_args"]["seq_len"] == 16
    assert run.config["trainer"]["logger"] is None
    quick("resume", "run", "--trainer.max_steps=6")
    assert "run" in quick("compare").stdout


class Wandb(ModuleType):
    """A stand-in for the package, which is not installed here."""

    run = None

    def __init__(self) -> None:
        super().__init__("wandb")
        self.given: dict[str, Any] = {}
        self.logged: list[dict[str, Any]] = []
        self.config, self.id, self.name = self, "1", "one"
        self.__path__: list[str] = []

    def require(self, what: str) -> None: ...

    def define_metric(self, *args: Any, **kwargs: Any) -> None: ...

    def update(self, config: dict[str, Any], **kwargs: Any) -> None:
        self.given |= config

    def init(self, **kwargs: Any) -> Wandb:
        self.given |= kwargs
        return self

    def log(self, metrics: dict[str, Any], **kwargs: Any) -> None:
        self.logged.append(metrics)


@pytest.mark.slow
def test_wandb_by_its_name(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    stub, parts = Wandb(), {f"wandb.{name}": ModuleType(name) for name in ("sdk", "sdk.lib", "wandb_run")}
    monkeypatch.setattr(lightning_wandb, "_WANDB_AVAILABLE", True)
    parts["wandb.sdk.lib"].RunDisabled = parts["wandb.wandb_run"].Run = Wandb  # type: ignore[attr-defined]
    for name, module in {"wandb": stub, **parts}.items():
        monkeypatch.setitem(sys.modules, name, module)
    quick(*FIT, "--trainer.logger", "wandb", "--trainer.logger.project=sequences")
    assert stub.given["project"] == "sequences" and stub.given["model"]["class_path"].endswith("LanguageModeling")
    assert sum("val/loss" in metrics for metrics in stub.logged) == len(find_run("run").history("val/loss")) == 2
    assert any("perf/tokens_per_s" in metrics and "lr" in metrics for metrics in stub.logged)


@pytest.mark.parametrize(
    ("given", "package"),
    [
        (["--trainer.logger=wandb"], "wandb"),
        (["--trainer.logger+=TensorBoardLogger", "--trainer.logger.save_dir=tb"], "tensorboard"),
        (["--trainer.logger", "comet"], "comet"),
    ],
)
def test_a_package_that_is_missing_is_named_before_there_is_a_run(
    given: list[str], package: str, quick: Seqlab, tmp_path: Path
) -> None:
    (line,) = quick(*FIT, *given, code=2).stderr.splitlines()
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
