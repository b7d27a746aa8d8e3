"""Two processes: each window once, the same weights, and exact resume."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from training.tiny_fit import text_data


def run(*args: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "training.ddp_fit", *args],
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "PATH": ""},
        timeout=600,
    ).returncode


def notes(folder: Path, rank: int) -> list[Any]:
    return [json.loads(line) for line in (folder / f"rank-{rank}").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    assert run(str(tmp_path / "whole")) == 0
    (*batches, weights), (*other_batches, other_weights) = (notes(tmp_path / "whole", rank) for rank in (0, 1))
    assert weights == other_weights
    first_epoch = Counter(
        tuple(window) for epoch, windows in batches + other_batches if epoch == 0 for window in windows
    )
    data = text_data(tmp_path)
    data.setup("fit")
    all_windows = Counter(tuple(window) for batch in data.train_dataloader() for window in batch.tokens.tolist())
    assert first_epoch == all_windows

    assert run(str(tmp_path / "resumed"), "7") == -signal.SIGKILL
    assert run(str(tmp_path / "resumed")) == 0
    for rank in (0, 1):
        assert notes(tmp_path / "resumed", rank)[-1] == weights
