"""A rank that hangs: the others say which it is and where it stands, and end, and the run goes on from there."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback, LambdaCallback
from lightning.pytorch.loggers.logger import DummyLogger

from callbacks.tiny_fit import TinyData, TinyTask
from cli.conftest import TINY, command, last_weights, write_text
from scale.forked import forked
from seqlab.callbacks.crash_report import crash_report
from seqlab.callbacks.rank_watchdog import RankWatchdog
from seqlab.checkpoints import shard_storage
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.parallel import SpreadStrategy
from seqlab.tracking.runs import find_run
from trainers import quiet_trainer


class Artifacts(DummyLogger):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.artifacts = folder


def hang(how: str) -> None:
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while how == "sleep":
        time.sleep(60)


def hanging(folder: Path, rank: int, how: str, saving: str) -> Callback:
    """Hangs in step 2, or once this rank has written its shards the second time and the other waits to hear of them."""

    def before(trainer: Any, *_: Any) -> None:
        if not saving and (trainer.global_rank, trainer.global_step) == (rank, 2):
            hang(how)

    def after(trainer: Any, *_: Any) -> None:
        if saving and (trainer.global_rank, trainer.global_step) == (rank, 2):
            shard_storage.sync_folder = lambda folder: hang(how)  # type: ignore[attr-defined]
        if saving:
            trainer.save_checkpoint(folder / "last.ckpt")

    return LambdaCallback(on_train_batch_start=before, on_train_batch_end=after)


class SpreadTask(TinyTask):
    def configure_model(self) -> None:
        assert isinstance(self.trainer.strategy, SpreadStrategy)
        self.trainer.strategy.spread(self.model)


def fit_two(folder: Path, rank: int, how: str, saving: str = "") -> list[int]:
    """The exit codes of two ranks, of which one may hang: it is killed when the other has ended."""

    def fit() -> None:
        sys.stderr = (folder / f"said-{dist.get_rank()}").open("w", buffering=1)
        callbacks = [hanging(folder, rank, how, saving), RankWatchdog(4)]
        plugins = [AtomicCheckpointIO(in_background=saving == "in the background")]
        options: dict[str, Any] = {"devices": 2, "use_distributed_sampler": False, "max_epochs": 1}
        options["strategy"] = "fsdp2" if saving else "ddp"
        trainer = quiet_trainer(folder, callbacks=callbacks, plugins=plugins, **options)
        trainer.loggers = [Artifacts(folder)]
        with crash_report():
            trainer.fit(SpreadTask() if saving else TinyTask(), TinyData())

    return forked(2, fit)


def said_by(folder: Path, rank: int) -> str:
    (said,) = [line for line in (folder / f"said-{rank}").read_text().splitlines() if "seqlab: " in line]
    return said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's, of short fits; Python's of a fork
@pytest.mark.parametrize(
    ("rank", "how", "saving", "where"),
    [
        (1, "sleep", "", r"what follows step 1, test_rank_watchdog.py:\d+ in hang"),
        (0, "stop", "", ".*"),
        (1, "sleep", "in the background", "the saving of a checkpoint, .*"),
    ],
)
def test_the_other_rank_says_who_is_missing_and_where_and_ends(
    rank: int, how: str, saving: str, where: str, tmp_path: Path
) -> None:
    """Ranks meet in a group of their own in the saving of a checkpoint."""
    other = 1 - rank
    codes = fit_two(tmp_path, rank, how, saving)
    assert (codes[rank], codes[other]) == (-signal.SIGKILL, 1)
    place = "the saving of a checkpoint" if saving else "the backward pass of step 2"
    waited = f"seqlab: rank {other} has waited 4 s in {place} for another one: rank {rank} is in "
    silent = r"(, has said nothing for \d+ s)" + ("" if how == "stop" else "?")  # a machine may be busy
    stacks = rf"; stacks are in {tmp_path}/ranks"
    assert re.fullmatch(re.escape(waited) + where + silent + stacks, said_by(tmp_path, other))
    assert "time.sleep(60)" in (tmp_path / "ranks" / "rank-1.txt").read_text() or how == "stop"


@pytest.mark.filterwarnings("ignore")
def test_ranks_that_go_on_leave_nothing(tmp_path: Path) -> None:
    assert fit_two(tmp_path, 0, "no") == [0, 0]
    assert not (tmp_path / "ranks").exists()


def test_who_is_missing(tmp_path: Path) -> None:
    calls = RankWatchdog(10)
    calls._rank, calls._passed, calls._place = 2, 7, "the update of step 3"
    for rank, passed in enumerate((7, 6, 7, 7)):
        (tmp_path / f"rank-{rank}.txt").write_text(f"{passed}\nhere\nfile.py:{rank} in f\n\nstack")
    os.utime(tmp_path / "rank-3.txt", (0, 0))
    said = calls.missing(tmp_path, 5)
    assert "rank 0" not in said and "rank 1 is in here, file.py:1 in f; rank 3 is in here, file.py:3 in f, has" in said
    assert said.endswith(f"rank 4 has not begun; stacks are in {tmp_path}")
    calls._rank = 1
    said = calls.missing(tmp_path, 3)
    assert "rank 0 is in here, file.py:0 in f; rank 2 is in here, file.py:2 in f, none of them behind it" in said


HANGS = """
import os, signal
from lightning.pytorch.callbacks import Callback
from seqlab.checkpoints import shard_storage

class Hangs(Callback):
    def on_train_batch_start(self, trainer, *args):
        if trainer.global_rank == 1 and trainer.global_step == 3 and "HANGS" in os.environ:
            shard_storage.sync_folder = lambda folder: os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_a_fit_of_which_a_rank_hangs_fails_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    (tmp_path / "hangs.py").write_text(HANGS)
    seqlab = command(tmp_path)
    fit = ["fit", "--config", "lm/gru", *TINY, "--trainer.max_steps=8", "--trainer.val_check_interval=9"]
    fit += ["--checkpoint_every=2", "--trainer.devices=2", "--trainer.accelerator=cpu"]
    fit += ["--trainer.callbacks=hangs.Hangs", "--trainer.strategy=fsdp2"]
    seqlab(*fit, "--run_name=whole")
    said = seqlab(*fit, "--run_name=hung", "--timeout=30", code=1, HANGS="yes").stderr
    assert "seqlab: rank 0 has waited 30 s in the saving of a checkpoint for another one: rank 1 is in " in said
    assert said.count("seqlab: ") == 1
    monkeypatch.chdir(tmp_path)
    run = find_run("hung")
    assert run.status == "FAILED" and run.tags["failure"].startswith("rank 0 has waited 30 s")
    seqlab("resume", "hung", "--trust", "hangs")
    resumed, whole = last_weights("hung"), last_weights("whole")
    assert find_run("hung").status == "FINISHED"
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
