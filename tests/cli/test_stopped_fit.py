"""A fit that is stopped or killed: words, an exit code, and a command that goes on bit for bit, in one run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import psutil
import pytest

from cli.conftest import TINY, Seqlab, before_steps, same_weights, send, write_text
from seqlab.callbacks.resume_consistency import ResumeConsistency
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store
from servers import free_port

TO_STOP = ("fit", "--config", "lm/gru", *TINY, "--trainer.max_steps=6", "--trainer.val_check_interval=9")


@pytest.mark.slow
def test_a_stopped_fit_says_how_to_go_on_and_does(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        send(patch, signal.SIGINT, 3)
        theirs = ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=100000")
        stopped = quick(*TO_STOP, *theirs, "--run_name=stopped", code=130)
    (line,) = stopped.stdout.splitlines()
    assert line.startswith("Stopped by SIGINT at step 4 of 6 · last checkpoint mlruns/tiny/")
    run = find_run("stopped")
    assert (run.status, run.tags["failure"]) == ("KILLED", "StoppedError: Stopped by SIGINT")
    command = re.search(r"of step 4 · next: seqlab (resume \w{8})$", line)
    assert command is not None
    quick(*command[1].split())
    quick(*TO_STOP, "--run_name=whole")
    assert find_run("stopped").status == "FINISHED"
    assert same_weights("stopped", "whole")
    assert find_run("stopped").history("train/loss") == find_run("whole").history("train/loss")
    assert [step for step, _ in find_run("whole").history("val/loss")] == [5], "shorter than its interval"


@pytest.mark.slow
def test_the_unfinished_fit_of_a_config_goes_on_as_the_last(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        with monkeypatch.context() as patch:
            send(patch, signal.SIGTERM, 3)
            quick(*TO_STOP, code=143)

    stop()
    assert "there is none" in quick(*TO_STOP, "--model.lr=0.5", "--ckpt_path=last", code=2).stderr
    stop()
    refused = quick(*TO_STOP, "--ckpt_path=last", code=2).stderr
    assert "there are 2" in refused and refused.count("KILLED") == 2
    quick("resume", search(Store())[0].id[:8])
    quick(*TO_STOP, "--ckpt_path=last")
    assert [run.status for run in search(Store())] == ["FINISHED"] * 2


@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_job_leaves_the_workers_to_the_fit(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_to_all(task: LanguageModeling, batch_idx: int) -> None:
        if batch_idx == 1:
            workers = [child for child in psutil.Process().children() if child.name() != "resource_tracker"]
            assert len(workers) >= 2
            for process in (*workers, psutil.Process()):
                process.send_signal(signal.SIGUSR1)

    before_steps(monkeypatch, send_to_all)
    workers = ("--data.num_workers=2", "--trainer.num_sanity_val_steps=1", "--trainer.val_check_interval=2")
    stopped = quick(*TO_STOP, *workers, "--run_name=stopped", code=128 + signal.SIGUSR1)
    assert stopped.stdout.startswith("Stopped by SIGUSR1 at step 2 of 6")
    run = find_run("stopped")
    assert (run.status, run.tags["failure"]) == ("KILLED", "StoppedError: Stopped by SIGUSR1")


@pytest.mark.slow
def test_an_early_stop_says_so_and_why(quick: Seqlab) -> None:
    early = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss")
    limits = ("--trainer.max_steps=50", "--trainer.val_check_interval=2", "--trainer.callbacks.stopping_threshold=99")
    first, second = quick(*TO_STOP, *early, *limits).stdout.splitlines()
    assert first.startswith("Stopped early at step 2 of 50: Stopping threshold reached: val/loss = ")
    assert "Signaling" not in first and second.startswith("Run ")


SEQLAB = str(Path(sys.executable).with_name("seqlab"))
FIT = ("fit", "--config", "lm/gru", *TINY, "--model.model.block.dropout=0.1", "--trainer.max_steps=8")
FIT += ("--trainer.val_check_interval=9", "--checkpoint_every=2")


def dying(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """The first life dies in the first of these steps, the second in the second."""
    left = list(steps)

    def die(task: LanguageModeling, batch_idx: int) -> None:
        if left and batch_idx == left[0]:
            raise RuntimeError(f"dies in step {left.pop(0)}")

    before_steps(monkeypatch, die)


@pytest.mark.slow
def test_a_job_is_begun_continued_and_finished_once(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (*FIT, "--resume=auto", "--run_name=job")
    quick(*FIT, "--run_name=whole")
    with monkeypatch.context() as patch:
        dying(patch, 1, 5)
        for _ in range(2):  # before there is a checkpoint, and after
            with pytest.raises(RuntimeError, match="dies in step"):
                quick(*job)
            assert find_run("job").status == "FAILED"
    quick(*job)
    run, whole = find_run("job"), find_run("whole")  # no other has that name
    assert run.status == "FINISHED" and run.history("train/loss") == whole.history("train/loss")
    assert same_weights("job", "whole")

    said = quick(*job, "--trainer.max_steps=99").stdout
    assert said.startswith(f"Run job ({run.id[:8]}) is FINISHED and is not trained again")
    assert "--ckpt_path is last" in quick(*job, "--ckpt_path=last", code=2).stderr
    assert "trainer.logger is false" in quick(*job, "--trainer.logger=false", code=2).stderr


@pytest.mark.slow
def test_a_changed_config_is_noted_and_other_data_are_refused(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (*FIT, "--resume=auto", "--run_name=changed")
    with monkeypatch.context() as patch:
        dying(patch, 3, 5)
        for changed in ([], ["--model.lr=0.001"]):
            with pytest.raises(RuntimeError, match="dies in step"):
                quick(*job, *changed)
    assert "model.init_args.lr: 0.004 -> 0.001" in find_run("changed").tags["seqlab.changed_params"]
    Path("other.txt").write_text("0123456789 " * 200, encoding="utf-8")
    refused = quick(*job, "--data.path=other.txt", code=2).stderr
    assert "continue with the data of the checkpoint" in refused
    quick("resume", "changed")  # its config says resume: auto
    assert find_run("changed").status == "FINISHED"
    assert "give a --run_name" in quick(*FIT, "--resume=auto", code=2).stderr


def test_ranks_that_would_begin_apart_are_refused() -> None:
    strategy = SimpleNamespace(broadcast=lambda mine: "last.ckpt", reduce_boolean_decision=bool)
    trainer: Any = SimpleNamespace(world_size=2, global_rank=1, strategy=strategy)
    ResumeConsistency("last.ckpt").setup(trainer, L.LightningModule(), "fit")
    with pytest.raises(ValueError, match=r"rank 0 continues from last.ckpt and rank 1 from none; all ranks must see"):
        ResumeConsistency(None).setup(trainer, L.LightningModule(), "fit")


KILLS = """
import os, signal
from pathlib import Path
from lightning.pytorch.callbacks import Callback

RANKS_AND_STEPS = [tuple(map(int, one.split("@"))) for one in os.environ["KILLS"].split()]

class Kills(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        done = len(list(Path().glob("killed-*")))
        if done < 2 and (trainer.global_rank, trainer.global_step) == RANKS_AND_STEPS[done]:
            Path(f"killed-{done}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
TWO_NODES = ("--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=two", "--local_addr=127.0.0.1")


def torchruns(folder: Path, kills: str, nodes: int, *args: str) -> None:
    """Two ranks, by one torchrun, or by two that meet as those of two machines do."""
    command = [sys.executable, "-m", "torch.distributed.run", "--max_restarts=2"]
    fit = [*args, f"--trainer.num_nodes={nodes}", f"--trainer.devices={2 // nodes}", "--trainer.accelerator=cpu"]
    env = {**os.environ, "KILLS": kills, "SEQLAB_CACHE": str(folder / "cache")}
    if nodes == 1:
        command += ["--nproc_per_node=2"]
    else:
        command += [*TWO_NODES, f"--rdzv_endpoint=127.0.0.1:{free_port()}"]
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    said = [(folder / f"said-{node}").open("w+") for node in range(nodes)]
    started = [subprocess.Popen([*command, *fit], cwd=folder, env=env, stdout=to, stderr=to) for to in said]
    try:
        codes = [one.wait(timeout=600) for one in started]
        assert codes == [0] * nodes, "".join((folder / f"said-{node}").read_text() for node in range(nodes))
    finally:
        for one, to in zip(started, said, strict=True):
            one.terminate()  # torchrun ends its ranks
            to.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "nodes", "strategy"),
    [("1@1 0@5", 1, "ddp"), ("0@3 1@6", 2, "fsdp2")],
    ids=["before a checkpoint", "on two nodes"],
)
def test_torchrun_starts_killed_ranks_again_in_one_run(
    kills: str, nodes: int, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path)
    (tmp_path / "kills.py").write_text(KILLS)
    fit = (*FIT, f"--trainer.strategy={strategy}", "--trainer.log_every_n_steps=1", "--resume=auto")
    torchruns(tmp_path, "", 1, "-m", "seqlab", *fit, "--run_name=whole")
    killed_by = ("--run_name=killed", "--trainer.callbacks=kills.Kills")
    torchruns(tmp_path, kills, nodes, "--no-python", SEQLAB, *fit, *killed_by)
    assert len(list(tmp_path.glob("killed-*"))) == 2
    monkeypatch.chdir(tmp_path)
    killed, whole = find_run("killed"), find_run("whole")  # no other has that name
    losses = whole.history("train/loss")
    assert len(losses) == 8 and (killed.status, killed.history("train/loss")) == ("FINISHED", losses)
    assert same_weights("killed", "whole")
