"""Surroundings that a command cannot begin in: one sentence each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cli.conftest import Seqlab
from cli.test_full_disk import file_size_limit
from seqlab.cli import _correct_environment, main
from seqlab.cli.fit import COUNTS
from seqlab.config.errors import sentence

FIT = ("fit", "--config=lm/gru")


@pytest.mark.parametrize("name", COUNTS)
def test_a_launchers_count_that_is_no_number(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before Lightning is imported, which reads SLURM_PROCID then and names no variable."""
    monkeypatch.setattr("seqlab.cli.fit.import_lightning", lambda: pytest.fail("it is imported"))
    monkeypatch.setenv(name, "many")
    assert main([*FIT]) == 2
    assert f"seqlab: the environment variable {name} is 'many'; accepted: a whole number\n" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", ["2", "1"])
def test_tasks_of_slurm_need_their_number_on_a_node(
    tasks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SLURM_NTASKS": tasks, "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    assert main([*FIT, "--trainer.max_stepz=2"]) == 2
    said = capsys.readouterr().err
    assert ("give sbatch or srun --ntasks-per-node" in said) == (tasks == "2")
    assert ("max_stepz is not an option" in said) == (tasks == "1")


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


CLOSED = f"seqlab: standard output is closed; give it a file, such as {os.devnull}\n"


@pytest.mark.parametrize(
    ("closed", "config", "code", "said"),
    [
        (">&-", "lm/gru", 2, CLOSED),
        ("<&- >&-", "lm/gru", 2, CLOSED),
        ("<&- 2>&-", "lm/gru", 0, ""),
        ("2>&-", "lm/none", 2, ""),
    ],
)
def test_only_a_closed_output_is_told(closed: str, config: str, code: int, said: str) -> None:
    """The command as a shell starts it that closes streams before."""
    script = f'exec "{sys.executable}" -m seqlab configs {config} {closed}'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr, "GRU" in done.stdout) == (code, said, code == 0)


def test_a_closed_input_is_told(beside_first: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    said = beside_first("generate", "first", "--prompt=-", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: standard input is closed; texts are read there"


def test_a_home_that_is_no_folder_is_named(quick: Seqlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for name in ("SEQLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    said = quick(*FIT, "--data.path=text.txt", code=2, HOME=str(tmp_path / "file")).stderr.splitlines()[-1]
    assert said.startswith(f"seqlab: the folder of the token caches, {tmp_path}/file/.cache/seqlab, cannot be made (")
    assert said.endswith("SEQLAB_CACHE, XDG_CACHE_HOME and HOME say where it is, the first of them that is set")


def test_a_home_that_nobody_knows_is_told(quick: Seqlab) -> None:
    said = quick(*FIT, "--data.path=~no-such-user/x", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: the user's home folder is not known: set HOME, and write no path with ~"


def test_a_limit_of_files_is_told_where_a_temporary_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with file_size_limit(0), pytest.raises(FileNotFoundError) as found:
        tempfile.gettempdir()
    with file_size_limit(0):
        said = sentence(found.value)
    why = "no temporary file can be written; files may have 0 bytes at most here (ulimit -f)"
    assert said == f"{why}; the environment variable TMPDIR names another folder for them"


@pytest.mark.parametrize(
    ("paths", "left", "stays"), [(":", "", False), (":/x", "/x", False), (".:", ".", True), ("/x", "/x", True)]
)
def test_an_empty_entry_of_pythonpath_is_not_the_working_folder(
    paths: str, left: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYTHONPATH=$PYTHONPATH:/x` leaves an empty entry where there was none before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    _correct_environment()
    assert os.environ["PYTHONPATH"] == left
    assert (str(tmp_path) in sys.path) == stays


@pytest.mark.parametrize(("columns", "left"), [("0", None), ("1", "1")])
def test_a_terminal_without_columns_is_one_of_unknown_width(
    columns: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _correct_environment()
    assert os.environ.get("COLUMNS") == left
