"""Two processes: each window once, the same weights, and exact resume."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from callbacks.tiny_fit import text_data


def run(*args: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "scale.ddp_fit", *args],
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
    assert run(str(tmp_path / "stopped"), "3", str(int(signal.SIGTERM))) == 128 + signal.SIGTERM
    assert len({len(notes(tmp_path / "stopped", rank)) for rank in (0, 1)}) == 1, "they stop at one step"
    assert run(str(tmp_path / "stopped")) == 0
    for folder, rank in product(("resumed", "stopped"), (0, 1)):
        assert notes(tmp_path / folder, rank)[-1] == weights
