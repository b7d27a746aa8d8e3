"""The script of a SLURM job: what it asks for, what it does at the end of its time, and that the fit goes on."""

from __future__ import annotations

import os
import re
import subprocess
from argparse import ArgumentError
from pathlib import Path

import pytest
import torch

from cli.conftest import TINY, command, last_weights, write_text
from seqlab.cli import main
from seqlab.cli.parsed_fit import check_fit
from seqlab.cli.submit import sbatch_script
from seqlab.config.errors import sentence
from seqlab.tracking.runs import find_run

JOB = ("submit", "--config", "lm/gru", "--nodes", "4", "--gpus", "8", "--time", "8:00:00", "--run_name", "it's it")
SHORT = [*TINY, "--trainer.max_steps=8", "--trainer.val_check_interval=9"]


@pytest.fixture
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
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    fake(bin, "srun", 'printf "%s\\n" "${@:3}" > arguments; exit 138')
    fake(bin, "scontrol")
    ended = subprocess.run(["bash"], input=script, text=True, env={**os.environ, "SLURM_JOB_ID": "7"})
    assert ended.returncode == 138 and Path("called").read_text().endswith("\nscontrol requeue 7\n")
    _, *fit = Path("arguments").read_text().splitlines()
    given = ["--config=lm/gru", "--run_name", "it's it", "--trainer.max_steps", "9"]
    assert fit == ["seqlab", "fit", *given, "--trainer.num_nodes=4", "--trainer.devices=8", "--resume=auto"]


@pytest.mark.usefixtures("_accepted")
@pytest.mark.parametrize("code", [0, 1, 137])
def test_what_did_not_stop_by_the_signal_is_not_queued_again(code: int, bin: Path) -> None:
    fake(bin, "srun", f"exit {code}")
    script = sbatch_script(["lm/gru"], [], 1, 1, None)
    assert subprocess.run(["bash"], input=script, text=True).returncode == code
    assert Path("called").read_text().startswith("srun ") and "scontrol" not in Path("called").read_text()


@pytest.mark.usefixtures("_accepted")
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
        (["--time", "0:60:00"], "minutes and seconds at most 59"),
        (["--time", "5:60"], "minutes and seconds at most 59"),
        (["--time", "1-24"], "hours beside days are at most 23"),
        (["--time", "0:02:00"], "--time must be more than the 120 s before its end"),
        (["--config", "lm/nothing"], "--config lm/nothing: neither a file nor a packaged config"),
        (["--trainer.max_stepz", "3"], "trainer.max_stepz is not an option; did you mean trainer.max_steps?"),
        (["--trainer.devices=2"], "submit says --trainer.devices itself, by --gpus"),
        (["--trainer.logger=false"], "--resume auto finds the run and its checkpoint in the tracking store, but"),
        (["--run_name=x\ntouch planted #"], "the job's name is 'seqlab-x\\ntouch planted #'; a script takes"),
    ],
)
def test_bad_input_is_refused_before_anything_is_printed(
    changed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *changed]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and said in printed.err


@pytest.mark.usefixtures("_accepted")
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
        if trainer.global_step in (2, 5) and trainer.fit_loop.epoch_loop.batch_progress.current.completed:
            if not os.path.exists(f"stopped at {trainer.global_step}") and trainer.global_rank == 0:
                open(f"stopped at {trainer.global_step}", "w").close()
                os.kill(os.getpid(), signal.SIGUSR1)
"""


@pytest.mark.slow
def test_a_job_of_two_tasks_is_queued_again_until_it_is_done(
    tmp_path: Path, bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path)
    (tmp_path / "stops.py").write_text(STOPS)
    fake(bin, "srun", SRUN)
    fake(bin, "scontrol")
    cpu = [*SHORT, "--trainer.accelerator=cpu"]
    command(tmp_path)("fit", "--config=lm/gru", *cpu, "--trainer.devices=2", "--run_name=whole")
    script = sbatch_script(["lm/gru"], [*cpu, "--trainer.callbacks=stops.Stops"], 1, 2, "1:00:00")
    env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "seqlab-gru", "SEQLAB_CACHE": str(tmp_path / "cache")}
    codes: list[int] = []
    while not codes or codes[-1] == 138:
        done = subprocess.run(["bash"], input=script, text=True, env=env, capture_output=True, timeout=300)
        codes.append(done.returncode)
    assert codes == [138, 138, 0], done.stderr
    assert Path("called").read_text().count("scontrol requeue 7") == 2
    (name,) = re.findall(r"^Run (\S+) ", done.stdout, flags=re.MULTILINE)
    run, (ends, wholes) = find_run(name), map(last_weights, (name, "whole"))
    assert (run.status, run.tags["job"]) == ("FINISHED", "slurm 7")
    assert all(torch.equal(ends[name], value) for name, value in wholes.items())


@pytest.mark.parametrize(
    "given", [[], ["--trainer.callbacks=Timer"], ['--trainer.callbacks=[{"class_path": "Timer"}]']]
)
def test_a_fit_is_checked_with_no_callback_one_or_a_list(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["seqlab"])
    write_text(tmp_path)
    assert check_fit(["--config=lm/gru", f"--data.path={tmp_path / 'text.txt'}", "--run_name=a", *given]) == "a"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--timeout=-5", "--timeout must be above 0 seconds, got -5"),
        ("--trainer.max_time=soon", "--trainer.max_time soon is no time; accepted: DD:HH:MM:SS"),
        ("--ema=2", "--ema must be above 0 and below 1, got 2"),
        ("--tokens_per_step=0", "tokens_per_step"),
        ("--checkpoint_every=0", "--checkpoint_every must be at least 1, got 0"),
        ("--trainer.plugins=BitsandbytesPrecision", "trainer.plugins lacks mode"),
    ],
)
def test_a_value_that_a_fit_refuses_is_refused_before(
    given: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["seqlab"])
    write_text(tmp_path)
    with pytest.raises((ValueError, ArgumentError), match=r".") as refused:
        check_fit(["--config=lm/gru", f"--data.path={tmp_path / 'text.txt'}", given])
    assert said in sentence(refused.value)
