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

from callbacks.ddp_tasks import kinds, write_files
from callbacks.tiny_fit import text_data


def run(*args: str, program: str = "callbacks.ddp_fit") -> int:
    return subprocess.run(
        [sys.executable, "-m", program, *args],
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


@pytest.mark.slow
def test_two_processes_score_and_predict_what_one_does_in_every_task(tmp_path: Path) -> None:
    write_files(tmp_path)
    for num_processes in ("2", "1"):
        assert run(str(tmp_path), num_processes, program="callbacks.ddp_tasks") == 0
    for name in kinds(tmp_path):
        two, one = (json.loads((tmp_path / f"{name} of {count}.json").read_text()) for count in (2, 1))
        assert "test/loss" in one and two == pytest.approx(one, rel=1e-5), name
        said, alone = (
            [json.loads(line) for line in (tmp_path / f"{name} of {count}.jsonl").read_text().splitlines()]
            for count in (2, 1)
        )
        assert [row["row"] for row in said] == list(range(len(said))) == [row["row"] for row in alone], name
        assert _numbers(said) == pytest.approx(_numbers(alone), rel=1e-4, abs=1e-5), name
        assert _without_numbers(said) == _without_numbers(alone), name


def _numbers(value: Any) -> list[float]:
    """All decimal numbers in what JSON has."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [number for part in parts for number in _numbers(part)]


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_numbers(part) for part in value]
    return None if isinstance(value, float) else value
