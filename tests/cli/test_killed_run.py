"""A fit that is killed outright: it is marked KILLED by the next command, and continued with `--ckpt_path last`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store

LONG = [*TINY, "--trainer.max_steps=1500", "--trainer.val_check_interval=1500", "--checkpoint_every=5"]
FIT = ("fit", "--config", "lm/gru", *LONG)


def kill_a_fit(folder: Path) -> None:
    """Starts a fit and sends SIGKILL when it has written its second checkpoint: then the store knows of the first."""
    fit = subprocess.Popen(
        [str(Path(sys.executable).with_name("seqlab")), *FIT],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SEQLAB_CACHE": str(folder / "cache")},
        stderr=subprocess.PIPE,
    )

    def written() -> set[tuple[Path, int]]:
        return {(path, path.stat().st_mtime_ns) for path in folder.glob("mlruns/*/*/artifacts/checkpoints/last.ckpt")}

    before, seen = written(), set[tuple[Path, int]]()
    try:
        deadline = time.monotonic() + 120
        while len(seen) < 2:
            seen |= written() - before
            assert fit.poll() is None and time.monotonic() < deadline, fit.communicate()[1].decode()
            time.sleep(0.05)
    finally:
        fit.send_signal(signal.SIGKILL)
        fit.communicate()


@pytest.mark.slow
def test_a_killed_fit_is_marked_and_continued(seqlab: Seqlab, tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    kill_a_fit(tmp_path)
    quick = inside(tmp_path)
    assert "KILLED" in quick("compare", "--metric", "train/loss", COLUMNS="160").stdout
    run_id = quick("compare", "--metric", "train/loss", "--quiet").stdout

    seqlab("resume", run_id.strip()[:8], "--trainer.max_steps=20", "--trainer.val_check_interval=10")
    assert find_run(run_id.strip()).status == "FINISHED"
    assert quick("compare", "--quiet").stdout == run_id


@pytest.mark.slow
def test_last_means_the_one_unfinished_run_of_this_config(seqlab: Seqlab, tmp_path: Path) -> None:
    kill_a_fit(tmp_path)
    other = seqlab(*FIT, "--model.lr=0.5", "--ckpt_path=last", code=2).stderr
    assert "there is none" in other

    run_id = seqlab("compare", "--metric", "train/loss", "--quiet").stdout
    seqlab(*FIT, "--ckpt_path=last")
    assert seqlab("compare", "--quiet").stdout == run_id
    assert find_run(run_id.strip(), Store(tmp_path / "mlruns")).status == "FINISHED"

    kill_a_fit(tmp_path)
    kill_a_fit(tmp_path)
    refused = seqlab(*FIT, "--ckpt_path=last", code=2).stderr
    assert "there are 2" in refused and refused.count("KILLED") == 2
