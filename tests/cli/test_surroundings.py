"""Surroundings that a fit cannot begin in: one sentence each."""

from __future__ import annotations

import pytest

from seqlab.cli import main
from seqlab.cli.fit import COUNTS


@pytest.mark.parametrize("name", COUNTS)
def test_a_launchers_count_that_is_no_number(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "many")
    assert main(["fit", "--config", "lm/gru"]) == 2
    assert f"seqlab: the environment variable {name} is 'many'; accepted: a whole number\n" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", ["2", "1"])
def test_tasks_of_slurm_need_their_number_on_a_node(
    tasks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SLURM_NTASKS": tasks, "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    assert main(["fit", "--config", "lm/gru", "--trainer.max_steps=-2"]) == 2
    said = capsys.readouterr().err
    assert ("give sbatch or srun --ntasks-per-node" in said) == (tasks == "2")
    assert ("max_steps must be at least -1" in said) == (tasks == "1")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("of 3 GiB"), "no memory left of 3 GiB"),
        (ImportError("failed to map segment from shared object"), "a library cannot be loaded: failed to map segment"),
    ],
)
def test_a_memory_limit_is_told(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("seqlab.cli._check_working_folder", fails)
    assert main(["compare"]) == 2
    assert capsys.readouterr().err.startswith(f"seqlab: {said}")
