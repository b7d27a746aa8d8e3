"""A class path names a module of the working folder; what else lies there is none."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from seqlab.working_folder import WorkingFolder


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in (
        "one_file.py",
        "some_code/part.py",
        "regular_package/__init__.py",
        "model_repository/1/model.py",
        "colorsys.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("VALUE = 3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


@pytest.mark.parametrize("name", ["one_file", "some_code.part", "regular_package"])
def test_code_there_is_found(name: str, folder: Path) -> None:
    assert importlib.import_module(name).VALUE == 3


def test_a_folder_without_code_is_no_package(folder: Path) -> None:
    """Torch would take a model repository in `triton` for the compiler of that name."""
    assert importlib.util.find_spec("model_repository") is None
    assert WorkingFolder.find_spec("nothing") is None


def test_what_is_installed_comes_first(folder: Path) -> None:
    assert WorkingFolder.find_spec("colorsys") is not None
    assert importlib.util.find_spec("colorsys") == importlib.machinery.PathFinder.find_spec("colorsys")


def test_a_folder_that_was_deleted_has_none(folder: Path) -> None:
    shutil.rmtree(folder)
    assert WorkingFolder.find_spec("one_file") is None


@pytest.mark.slow
def test_a_command_runs_beside_it_and_its_spawned_processes_find_code_too(seqlab: Seqlab, tmp_path: Path) -> None:
    (tmp_path / "triton" / "seqlab_model").mkdir(parents=True)
    (tmp_path / "my_mixers.py").write_text(
        "from seqlab.recurrence import GRU\n\n\nclass Mine(GRU): ...\n", encoding="utf-8"
    )
    spawn = ["--trainer.strategy=ddp_spawn", "--trainer.devices=2", "--trainer.accelerator=cpu"]
    seqlab("fit", "--config", "lm/gru", *TINY, "--model.model.mixer=my_mixers.Mine", *spawn)


@pytest.mark.parametrize("name", ["seqlab", "seqlab.cli"])
def test_python_runs_the_command_as_a_module_and_looks_there_last(name: str, tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise AssertionError\n", encoding="utf-8")
    command = [sys.executable, "-m", name, "configs", "lm/gru"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (said.returncode, said.stderr) == (0, "") and said.stdout.startswith("# seqlab fit")
    wrong = subprocess.run([*command, "extra"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2 and wrong.stderr.startswith("seqlab: ")
