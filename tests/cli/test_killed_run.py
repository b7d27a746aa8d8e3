"""Commands that are killed outright: a fit is marked KILLED and goes on; what a verb writes is there whole or not at
all, and the same command works after."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from seqlab.checkpoint_io import read_checkpoint
from seqlab.tracking.runs import find_run

LONG = [*TINY, "--trainer.max_steps=800", "--trainer.val_check_interval=800", "--checkpoint_every=5"]
FIT = ("fit", "--config", "lm/gru", *LONG)
SHARES = (0.7, 0.95)
"""Moments of the kill, as shares of the verb's time; before the half it imports."""
WRITERS = {
    "export": (["export", "first", "--out=new bundle"], "new bundle"),
    "page": (["page", "bundle", "--out=page.html"], "page.html"),
    "compare": (["compare", "--out=report.html"], "report.html"),
    "promote": (["promote", "bundle"], None),
    "sweep": (["sweep", "--config=lm/gru", *TINY, "--vary=model.lr=0.1,0.2", "--sampler=grid", "--name=swept"], None),
}


def started(folder: Path, *args: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("seqlab")), *args]
    environment = {**os.environ, "SEQLAB_CACHE": str(folder / "cache")}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def kill_a_fit(folder: Path) -> None:
    """Starts a fit and sends SIGKILL when it has written its second checkpoint: then the store knows of the first."""

    def written() -> set[tuple[Path, int]]:
        return {(path, path.stat().st_mtime_ns) for path in folder.glob("mlruns/*/*/artifacts/checkpoints/last.ckpt")}

    before, seen = written(), set[tuple[Path, int]]()
    fit = started(folder, *FIT)
    try:
        deadline = time.monotonic() + 600
        while len(seen) < 2:
            seen |= written() - before
            assert fit.poll() is None and time.monotonic() < deadline, fit.communicate()[0].decode()
            time.sleep(0.05)
    finally:
        fit.kill()
        fit.communicate()


@pytest.mark.slow
def test_a_killed_fit_is_marked_and_continued_by_its_name_and_as_the_last(quick: Seqlab, tmp_path: Path) -> None:
    kill_a_fit(tmp_path)
    assert "KILLED" in quick("compare", "--metric", "train/loss", COLUMNS="160").stdout
    (first,) = quick("compare", "--metric", "train/loss", "--quiet").stdout.split()
    other = quick(*FIT, "--model.lr=0.5", "--ckpt_path=last", code=2).stderr
    assert "there is none" in other

    kill_a_fit(tmp_path)
    refused = quick(*FIT, "--ckpt_path=last", code=2).stderr
    assert "there are 2" in refused and refused.count("KILLED") == 2

    last = find_run(first).last_checkpoint
    assert last is not None
    steps = read_checkpoint(last)["global_step"] + 10
    quick("resume", first[:8], f"--trainer.max_steps={steps}", "--trainer.val_check_interval=5")
    assert find_run(first).status == "FINISHED"
    (second,) = {*quick("compare", "--metric", "train/loss", "--quiet").stdout.split()} - {first}
    quick(*FIT, "--ckpt_path=last")
    assert find_run(second).status == "FINISHED"
    assert {*quick("compare", "--quiet").stdout.split()} == {first, second}


@pytest.fixture(scope="module", name="folder")
def _folder(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run and its bundle."""
    folder = tmp_path_factory.mktemp("killed") / "copy"
    shutil.copytree(fitted, folder)
    finish(folder, "export", "first", "--out=bundle")
    return folder


def finish(folder: Path, *args: str) -> None:
    process = started(folder, *args)
    said, _ = process.communicate()
    assert process.returncode == 0, said.decode()


@pytest.mark.slow
@pytest.mark.parametrize("verb", WRITERS)
def test_what_is_written_is_whole_or_not_there(
    verb: str, folder: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    args, out = WRITERS[verb]
    whole = shutil.copytree(folder, tmp_path / "whole")
    begun = time.monotonic()
    finish(whole, *args)
    seconds = time.monotonic() - begun
    for share in SHARES:
        there = shutil.copytree(folder, tmp_path / f"killed at {share}")
        with started(there, *args) as process:
            time.sleep(share * seconds)
            process.kill()
        seqlab = inside(there)
        if out == "new bundle" and (there / out).exists():
            seqlab("verify", out)
        elif out is not None and (there / out).exists():
            assert (there / out).read_text(encoding="utf-8").rstrip().endswith("</html>")
        if out is None or not (there / out).exists():
            seqlab(*args)
        assert "first" in seqlab("compare", COLUMNS="160").stdout
