"""The TrainJob that `submit --format trainjob` prints: Kubeflow's own models accept it, and its command fits."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

from cli.conftest import TINY, write_text
from seqlab.cli import main
from seqlab.cli.train_job import FOLDER, train_job
from seqlab.tracking.runs import find_run
from servers import free_port

ROOT = Path(__file__).parents[2]
JOB = ("submit", "--config", "lm/gru", "--format", "trainjob")
OF_JOB = ("--image", "seqlab:1", "--claim", "books", "--run_name", "It's it")


def printed(*args: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*JOB, *OF_JOB, *args]) == 0
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.slow
def test_the_job_is_one_of_kubeflow_and_asks_for_the_machines(capsys: pytest.CaptureFixture[str]) -> None:
    job = printed("--nodes", "4", "--gpus", "8", "--trainer.max_steps", "9", capsys=capsys)
    assert TrainerV1alpha1TrainJob.from_dict(job).to_dict() == job, "a field that Kubeflow does not know is dropped"
    assert job["metadata"]["name"] == "it-s-it"
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["image"]) == (4, 8, "seqlab:1")
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 8}}
    given = ["--config=lm/gru", "--run_name", "It's it", "--trainer.max_steps", "9"]
    fit = ["torchrun", "-m", "seqlab", "fit", *given, "--trainer.num_nodes=4", "--trainer.devices=8", "--resume=auto"]
    assert trainer["args"] == fit
    [node] = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "books"}
    assert pod["containers"][0]["volumeMounts"] == [{"name": pod["volumes"][0]["name"], "mountPath": FOLDER}]


@pytest.mark.slow
def test_its_command_fits_once_by_two_processes_however_often_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the environment that Kubeflow's runtime for torch sets."""
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    cpu = [*TINY, "--trainer.max_steps=3", "--trainer.val_check_interval=3", "--trainer.accelerator=cpu"]
    trainer = printed("--gpus", "2", *cpu, capsys=capsys)["spec"]["trainer"]
    command = [word.replace(FOLDER, str(tmp_path)) for word in trainer["command"]] + trainer["args"]
    runtime = {
        "NNODES": "1",
        "NPROC_PER_NODE": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    environment = os.environ | {f"PET_{name}": value for name, value in runtime.items()}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for says in ("next: seqlab export", "is FINISHED"):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/")
        assert done.returncode == 0 and says in done.stdout + done.stderr, done.stderr
    assert find_run("It's it").status == "FINISHED"


@pytest.mark.slow
def test_the_command_for_skypilot_fits(tmp_path: Path) -> None:
    """In a folder in the bucket's place, in fewer steps."""
    task = yaml.safe_load((ROOT / "examples/deploy/skypilot.yaml").read_text())
    [bucket] = task["file_mounts"]
    assert task["setup"] == "make .venv/installed\n"
    write_text(tmp_path)
    (tmp_path / "text.txt").rename(tmp_path / "books.txt")
    script = task["run"].replace(f"cd {bucket}", f"cd {tmp_path}").rstrip()
    small = [*TINY[1:], "--trainer.max_steps=3", "--trainer.accelerator=cpu"]
    environment = os.environ | {"SKYPILOT_NUM_GPUS_PER_NODE": "1"}
    done = subprocess.run(
        ["bash", "-c", f"{script} {shlex.join(small)}"], capture_output=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0 and b"Run books " in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--claim", "books", "--run_name", "a"], "--format trainjob needs --image"),
        (["--image", "seqlab:1", "--run_name", "a"], "--format trainjob needs --claim"),
        (OF_JOB[:4], "--format trainjob needs --run_name"),
        ([*OF_JOB, "--time", "1:00:00"], "--format trainjob takes no --time"),
        ([*OF_JOB, "--nodes", "0"], "--nodes must be at least 1, got 0"),
        (["--format", "slurm", "--claim", "books"], "--format slurm takes no --claim"),
        (
            [*OF_JOB[:4], "--run_name", "日本"],
            "the run's name '日本' has no letter or digit that the name of a TrainJob",
        ),
    ],
)
def test_bad_input(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = args[args.index("--run_name") + 1] if "--run_name" in args else None
    monkeypatch.setattr("seqlab.cli.parsed_fit.check_fit", lambda _: named)
    assert main([*JOB, *args]) == 2
    found = capsys.readouterr()
    assert found.out == "" and said in found.err


def test_no_text_of_the_user_is_read_as_yaml() -> None:
    text = "a: [b\n- c # d"
    job = yaml.safe_load(train_job(text, [text], 1, 1, text, text))
    assert job["spec"]["trainer"]["image"] == text and job["spec"]["trainer"]["args"][-1] == text
    assert job["metadata"]["name"] == "a-b-c-d"


@pytest.mark.parametrize("name", ["2026-11-29", "-a-", "x" * 80, f"{'x' * 49}-y", "9" * 80, "Ärger 1"])
def test_every_name_is_one_of_kubernetes(name: str) -> None:
    """The rule of TrainJob's own validation, and room for what is added to the names of its pods."""
    label = yaml.safe_load(train_job(name, [], 1, 1, "seqlab:1", "books"))["metadata"]["name"]
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", label) and len(label) <= 54


def test_go_hands_it_to_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.cli.parsed_fit.check_fit", lambda _: "a")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/told; cat > {tmp_path}/job; exit 3\n')
    (tmp_path / "kubectl").chmod(0o755)
    assert main([*JOB, *OF_JOB, "--go"]) == 3
    assert (tmp_path / "told").read_text() == "create --filename -\n"
    assert yaml.safe_load((tmp_path / "job").read_text())["kind"] == "TrainJob"
