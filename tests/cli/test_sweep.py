"""A sweep of real fits: its runs, its table, and the config that it ends with."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cli.conftest import TINY, write_text
from forks import server_of_this_process
from seqlab.cli import main
from seqlab.tracking.runs import search
from seqlab.tracking.store import Store

FIT = [flag for flag in TINY if not flag.startswith("--experiment")]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
SWEEP = ["sweep", "--config", "lm/gru", "--sampler", "grid", "--name", "tiny"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    with server_of_this_process() if request.node.get_closest_marker("slow") else nullcontext():
        yield


@pytest.mark.slow
def test_an_objective_that_nothing_logs_is_refused_before_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("val/nope", "val_loss", "val/loss,test/loss"):
        assert main([*SWEEP, f"--objective={wrong}", "--vary", "model.lr=0.01,0.1", "--", *FIT]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        said = f"seqlab: --objective {wrong.rpartition(',')[2]}, which nothing logs; there are: val/loss, "
        assert line.startswith(said) and line.endswith("num_*, state_size, perf/*, system/*")
    assert not Path("mlruns").exists()


@pytest.mark.slow
def test_two_seeds_of_two_learning_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SWEEP, "--vary", "model.lr=0.01,1e30", "--seeds", "2", "--", *FIT]) == 0
    said = capsys.readouterr().out
    runs = {run.name: run for run in search(Store(), experiment="tiny")}
    assert set(runs) == {"tiny", "tiny-0-s0", "tiny-0-s1", "tiny-1-s0"}
    parent, first, second, failed = (runs[name] for name in ("tiny", "tiny-0-s0", "tiny-0-s1", "tiny-1-s0"))
    children = [first, second, failed]
    assert {run.tags["mlflow.parentRunId"] for run in children} == {parent.id}
    assert "mlflow.parentRunId" not in parent.tags and parent.status == "FINISHED"
    assert (second.tags["sweep"], second.tags["sweep.trial"], second.tags["sweep.seed"]) == ("tiny", "0", "1")
    assert (first.params["seed_everything"], second.params["seed_everything"]) == ("0", "1")
    assert first.params["model.init_args.lr"] == "0.01"
    assert (first.tags["task"], first.tags["mixer"]) == ("LanguageModeling", "GRU")
    losses = [min(value for _, value in run.history("val/loss")) for run in (first, second)]
    assert losses[0] != losses[1]
    assert parent.metrics["val/loss"] == pytest.approx(sum(losses) / 2)
    assert f"{sum(losses) / 2:.5g} ± " in said
    assert failed.status == "FAILED" and "Failed: trial 1: DivergedError: the training loss is" in said

    assert main(["compare", "--experiment", "tiny", "-q"]) == 0
    assert parent.id not in (compared := capsys.readouterr().out) and first.id in compared

    assert main(["compare", "tiny", "-q"]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(run.id for run in children), "of the sweep's run, its fits"
    report = (parent.artifacts / "report.html").read_text(encoding="utf-8")
    command = next(text for text in re.findall(r"<code>(seqlab fit.*?)</code>", report) if second.id in text)
    assert main(shlex.split(command)[1:]) == 0
    repeated = next(run for run in search(Store()) if run.name == "tiny-0-s1-again")
    assert repeated.tags["config_hash"] == second.tags["config_hash"] and repeated.status == "FINISHED"
    assert repeated.history("train/loss") == second.history("train/loss"), "bit for bit"

    best = re.search(r"next: seqlab fit --config (\S+)", said.replace("\n", " "))
    assert best is not None and Path(best[1]) == parent.artifacts / "best.yaml"
    assert main(["fit", "--config", best[1], "--run_name=again", "--seed_everything=1"]) == 0
    again = next(run for run in search(Store()) if run.name == "again")
    assert min(value for _, value in again.history("val/loss")) == losses[1]


LR = "--vary model.lr=1,2"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("--vary model.lr", "--vary model.lr: accepted: OPTION=LOW..HIGH"),
        ("--vary model.model.mixer=GRU,LSTMM", "there is no class LSTMM"),
        ("--vary model.learning=1,2", "is not an option"),
        (f"{LR} --vary model.lr=3,4", "model.lr already varies over 1,2"),
        ("no.yaml", "no.yaml"),
        (
            f"{LR} --objective val/loss --objective val/loss",
            "--objective val/loss,val/loss: accepted: comma-separated metrics",
        ),
        (f"{LR} --storage nothing://x", "--storage nothing://x cannot be opened"),
        (f"{LR} --storage sqlite://", "--storage sqlite:// is in memory and ends with its process"),
        (f"{LR} --devices-per-trial 0", "--devices-per-trial must be at least 1"),
    ],
)
def test_what_cannot_be_swept(
    args: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--storage" in args:
        monkeypatch.setattr("seqlab.cli.sweep._check_fits", lambda plan: None)
    assert main([*SWEEP, *args.split()]) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
    assert not Path("mlruns/mlflow.db").exists()


@pytest.mark.slow
def test_a_worker_needs_a_sweep_and_its_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seqlab.cli.sweep.JOINING", 0.0)
    monkeypatch.setattr("seqlab.cli.sweep._check_fits", lambda plan: None)
    varied, refused = [*SWEEP, *LR.split()], ["--", "--nothing=1"]
    assert main([*varied, "--worker"]) == 2
    assert "there is no sweep tiny to work on" in capsys.readouterr().err
    assert main([*varied, *refused]) == 1
    assert "Failed: trials 0, 1: nothing is not an option" in capsys.readouterr().out
    assert [run.status for run in search(Store())] == ["FAILED"]
    assert main([*varied, "--worker", *refused]) == 0
    capsys.readouterr()
    assert main([*SWEEP, "--vary", "model.lr=1,3", *refused]) == 2
    assert "was begun with vary {'model.lr': '1,2'}, not {'model.lr': '1,3'}" in capsys.readouterr().err
