"""Surroundings that a fit cannot begin in: one sentence each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from cli.test_full_disk import file_size_limit
from seqlab.cli import main
from seqlab.cli.fit import COUNTS
from seqlab.config.errors import sentence


@pytest.mark.parametrize("name", COUNTS)
def test_a_launchers_count_that_is_no_number(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before Lightning is imported, which reads SLURM_PROCID then and names no variable."""
    monkeypatch.setattr("seqlab.cli.fit.import_lightning", lambda: pytest.fail("it is imported"))
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
    monkeypatch.setattr(sys, "unraisablehook", print)
    assert main(["compare"]) == 2
    assert sys.unraisablehook is not print  # what fails at Python's end says nothing more
    assert capsys.readouterr().err.startswith(f"seqlab: {said}")


def typed(closed: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it that closes streams before."""
    script = f'exec "{sys.executable}" -m seqlab "$@" {closed}'
    return subprocess.run(["sh", "-c", script, "sh", *args], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_closed_output_is_told(closed: str) -> None:
    done = typed(closed, "configs", "lm/gru")
    assert done.returncode == 2
    assert done.stderr == f"seqlab: standard output is closed; give it a file, such as {os.devnull}\n"


def test_what_is_read_nowhere_and_said_nowhere_may_be_closed() -> None:
    done = typed("<&- 2>&-", "configs", "lm/gru")
    assert done.returncode == 0 and "GRU" in done.stdout
    assert typed("2>&-", "configs", "lm/none").returncode == 2


def test_a_closed_input_is_told(
    fitted: tuple[Path, Seqlab], inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = fitted
    monkeypatch.setattr(sys, "stdin", None)
    said = inside(home)("generate", "first", "--prompt=-", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: standard input is closed; texts are read there"


def test_a_home_that_is_no_folder_is_named(
    fitted: tuple[Path, Seqlab], inside: Callable[[Path], Seqlab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = fitted
    seqlab = inside(home)
    (tmp_path / "file").touch()
    for name in ("SEQLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    said = seqlab("fit", "--config=lm/gru", *TINY, code=2, HOME=str(tmp_path / "file")).stderr.splitlines()[-1]
    assert said.startswith(f"seqlab: the folder of the token caches, {tmp_path}/file/.cache/seqlab, cannot be made (")
    assert said.endswith("SEQLAB_CACHE, XDG_CACHE_HOME and HOME say where it is, the first of them that is set")


def test_a_home_that_nobody_knows_is_told(inside: Callable[[Path], Seqlab], tmp_path: Path) -> None:
    said = inside(tmp_path)("fit", "--config=lm/gru", *TINY, "--data.path=~no-such-user/x", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: the user's home folder is not known: set HOME, and write no path with ~"


def test_a_limit_of_files_is_told_where_a_temporary_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with file_size_limit(0), pytest.raises(FileNotFoundError) as found:
        tempfile.gettempdir()
    with file_size_limit(0):
        said = sentence(found.value)
    why = "no temporary file can be written; files may have 0 bytes at most here (ulimit -f)"
    assert said == f"{why}; the environment variable TMPDIR names another folder for them"
