"""The script of a SLURM job: what it asks for, what it does at the end of its time, and that the fit goes on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cli.conftest import TINY, Seqlab, before_steps, last_weights, write_text
from seqlab.cli import main, parsed_fit
from seqlab.cli.parsed_fit import ParsedFit, check_fit
from seqlab.cli.submit import sbatch_script
from seqlab.config.configs import resolve_names
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store

JOB = ("submit", "--config", "lm/gru", "--nodes", "4", "--gpus", "8", "--time", "8:00:00", "--run_name", "it's it")


@pytest.fixture(name="accepted")
def _accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a fit would say of its options."""
    monkeypatch.setattr("seqlab.cli.parsed_fit.check_fit", lambda args: None)


@pytest.fixture(name="bin")
def _bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that come first; `called` has what each was told."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "bin"


def fake(folder: Path, name: str, does: str = "") -> None:
    (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {folder.parent}/called\n{does}\n')
    (folder / name).chmod(0o755)


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash"], input=script, text=True, env={**os.environ, **env}, capture_output=True, timeout=300
    )


@pytest.mark.slow
def test_the_script_asks_for_the_machines_and_names_the_job(capsys: pytest.CaptureFixture[str], bin: Path) -> None:
    assert main([*JOB, "--trainer.max_steps", "9"]) == 0
    script = capsys.readouterr().out
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, flags=re.MULTILINE))
    assert asked == {
        "job-name": "'seqlab-it'\"'\"'s it'",
        "nodes": "4",
        "ntasks-per-node": "8",
        "gpus-per-node": "8",
        "time": "8:00:00",
        "signal": "USR1@120",
        "open-mode": "append",
        "chdir": str(Path.cwd()),
    }
    fake(bin, "srun", 'printf "%s\\n" "${@:3}" > arguments; exit 138')
    fake(bin, "scontrol")
    assert run(script, SLURM_JOB_ID="7").returncode == 138
    assert Path("called").read_text().endswith("\nscontrol requeue 7\n")
    _, *fit = Path("arguments").read_text().splitlines()
    given = ["--config=lm/gru", "--run_name", "it's it", "--trainer.max_steps", "9"]
    assert fit == ["seqlab", "fit", *given, "--trainer.num_nodes=4", "--trainer.devices=8", "--resume=auto"]


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize("code", [0, 1, 137])
def test_what_did_not_stop_by_the_signal_is_not_queued_again(code: int, bin: Path) -> None:
    fake(bin, "srun", f"exit {code}")
    assert run(sbatch_script(["lm/gru"], [], 1, 1, None)).returncode == code
    assert Path("called").read_text().startswith("srun ") and "scontrol" not in Path("called").read_text()


@pytest.mark.usefixtures("accepted")
def test_go_hands_it_to_sbatch(bin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(bin, "sbatch", "cat > script; exit 3")
    assert main([*JOB, "--go"]) == 3
    assert main(list(JOB)) == 0
    assert Path("script").read_text() == capsys.readouterr().out
    (bin / "sbatch").unlink()
    assert main([*JOB, "--go"]) == 2
    assert "there is no sbatch on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--nodes", "0"], "--nodes must be at least 1, got 0"),
        (["--gpus", "-1"], "--gpus must be at least 1, got -1"),
        (["--time", "tomorrow"], "--time is 'tomorrow'; accepted: minutes, MM:SS"),
        (["--time", "0:60:00"], "minutes and seconds are at most 59"),
        (["--time", "5:60"], "minutes and seconds are at most 59"),
        (["--time", "1-24"], "with days hours are at most 23"),
        (["--time", "0:02:00"], "--time must exceed the 120 s before its end"),
        (["--config", "lm/nothing"], "--config lm/nothing: neither a file nor a packaged config"),
        (["--trainer.max_stepz", "3"], "trainer.max_stepz is not an option; did you mean trainer.max_steps?"),
        (["--trainer.devices=2"], "submit sets --trainer.devices itself, by --gpus"),
        (["--trainer.plugins=BitsandbytesPrecision"], "trainer.plugins lacks mode"),
    ],
)
def test_bad_input_is_refused_before_anything_is_printed(
    changed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *changed]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err


WRONG = {
    "timeout": ("-5", "--timeout must be above 0 seconds, got -5"),
    "trainer.max_steps": ("-2", "trainer.max_steps must be at least -1, got -2"),
    "trainer.max_time": ("soon", "--trainer.max_time soon is not a time; accepted: DD:HH:MM:SS"),
    "ema": ("2", "--ema must be above 0 and below 1, got 2"),
    "tokens_per_step": ("0", "tokens_per_step"),
    "checkpoint_every": ("0", "--checkpoint_every must be at least 1, got 0"),
    "trainer.logger": ("false", "--resume auto finds the run and its checkpoint in the tracking store, but"),
    "run_name": ("x\ntouch planted #", "the job's name is 'seqlab-x\\ntouch planted #'; accepted: one line"),
}
"""Values that the parser takes, and what refuses them."""


@pytest.fixture(scope="module", name="wrong")
def _wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The options of a fit with all that is wrong, parsed once, and a callback."""
    write_text(folder := tmp_path_factory.mktemp("parsed"))
    given = ["--config=lm/gru", f"--data.path={folder / 'text.txt'}", '--trainer.callbacks=[{"class_path": "Timer"}]']
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["seqlab"])
        given += [f"--{name}={value}" for name, (value, _) in WRONG.items()]
        return ParsedFit("fit", resolve_names(given)).config["fit"]


@pytest.fixture(name="options")
def _options(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Options of which nothing is wrong, that a fit is given."""
    options = wrong.clone()
    for name in WRONG:
        options[name] = {"checkpoint_every": 500, "trainer.max_steps": -1}.get(name)
    monkeypatch.setattr(parsed_fit, "ParsedFit", lambda *_: SimpleNamespace(config={"fit": options}))
    return options


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_a_fit_refuses_is_refused_before(
    name: str, wrong: Any, options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    options[name] = wrong[name]
    assert main(list(JOB)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and WRONG[name][1] in printed.err


def test_a_fit_is_checked_with_no_callback_one_or_a_list(options: Any) -> None:
    several, options.run_name = options.trainer.callbacks, "a"
    for callbacks in (several, several[0], None):
        options.trainer.callbacks = callbacks
        assert check_fit([]) == "a"


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize("time", ["3", "90", "90:59", "2:01", "0:03:00", "99:59:59", "1-0", "1-23:59:59"])
def test_times_as_slurm_writes_them(time: str) -> None:
    assert f"#SBATCH --time={time}\n" in sbatch_script(["lm/gru"], [], 1, 1, time)


SRUN = """
shift
export SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_NNODES=1 SLURM_NODEID=0
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_LOCALID=1 "$@"
wait $first
"""
STOPS = """
import os, signal
from lightning.pytorch.callbacks import Callback

class Stops(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        cluster = trainer._accelerator_connector.cluster_environment
        assert type(cluster).__name__ == "SLURMEnvironment" and not cluster.auto_requeue
        if trainer.global_step in (2, 5) and trainer.fit_loop.epoch_loop.batch_progress.current.completed:
            if not os.path.exists(f"stopped at {trainer.global_step}") and trainer.global_rank == 0:
                open(f"stopped at {trainer.global_step}", "w").close()
                os.kill(os.getpid(), signal.SIGUSR1)
"""


@pytest.mark.slow
def test_a_job_of_two_tasks_is_queued_again_until_it_is_done(tmp_path: Path, bin: Path) -> None:
    write_text(tmp_path)
    (tmp_path / "stops.py").write_text(STOPS)
    fake(bin, "srun", SRUN)
    fake(bin, "scontrol")
    cpu = [*TINY, "--trainer.max_steps=8", "--trainer.val_check_interval=9", "--trainer.accelerator=cpu"]
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "seqlab-gru", "SEQLAB_CACHE": str(tmp_path / "cache")}
    whole = sbatch_script(["lm/gru"], [*cpu, "--run_name=whole"], 1, 2, "1:00:00")
    assert (first := run(whole, **env)).returncode == 0, first.stderr
    script = sbatch_script(["lm/gru"], [*cpu, "--trainer.callbacks=stops.Stops"], 1, 2, "1:00:00")
    codes: list[int] = []
    while not codes or codes[-1] == 138:
        codes.append((done := run(script, **env)).returncode)
    assert codes == [138, 138, 0], done.stderr
    assert Path("called").read_text().count("scontrol requeue 7") == 2
    (name,) = re.findall(r"^Run (\S+) ", done.stdout, flags=re.MULTILINE)
    found, (ends, wholes) = find_run(name), map(last_weights, (name, "whole"))
    assert (found.status, found.tags["job"]) == ("FINISHED", "slurm 7")
    assert all(torch.equal(ends[name], value) for name, value in wholes.items())


def test_a_task_of_slurm_is_queued_again_by_the_script_alone(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning would queue it again itself, from a checkpoint of its own."""
    found: list[Any] = []
    before_steps(monkeypatch, lambda task, _: found.append(task.trainer._accelerator_connector.cluster_environment))
    ones, none = ("NTASKS", "NTASKS_PER_NODE", "NNODES"), ("NODEID", "PROCID", "LOCALID")
    task = {f"SLURM_{name}": "1" for name in ones} | {f"SLURM_{name}": "0" for name in none}
    task |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "seqlab-gru"}
    quick("fit", "--config=lm/gru", *TINY, "--trainer.max_steps=1", **task)
    assert [(type(one).__name__, one.auto_requeue) for one in found] == [("SLURMEnvironment", False)]
    assert [run.tags["job"] for run in search(Store())] == ["slurm 7"]
