"""A class path names a module of the working folder, which may import its neighbours; nothing else finds them."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonargparse._util import import_object

from cli.conftest import TINY, Seqlab
from seqlab.files.working_folder import NAMED, WorkingFolder, add_working_folder

FILES = {
    "one_file.py": "import neighbour\nclass Mine: ...\ndef later():\n    import late\n    return late.VALUE\n",
    "neighbour.py": "VALUE = 3\n",
    "late.py": "VALUE = 4\n",
    "some_code/part.py": "class Mine: ...\n",
    "regular_package/__init__.py": "class Mine: ...\n",
    "uses.py": "import some_library\nFOUND = some_library.tries('neighbour')\nclass Mine: ...\n",
    "model_repository/1/model.py": "",
    "colorsys.py": "",
}


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NAMED, "")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    add_working_folder()
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("one_file", "neighbour", "late", "some_code", "some_code.part", "regular_package"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["one_file", "some_code.part", "regular_package"])
def test_a_class_path_finds_its_module_and_no_other_import_does(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
    assert import_object(f"{name}.Mine").__name__ == "Mine"
    assert os.environ[NAMED].split(",")[0] == name.partition(".")[0]


def test_it_finds_its_neighbours_at_once_and_later() -> None:
    assert import_object("one_file.later")() == 4
    assert os.environ[NAMED] == "one_file,neighbour,late"


def test_a_library_that_it_imports_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("some_library")
    exec("def tries(name):\n    return __import__(name)", vars(library))
    monkeypatch.setitem(sys.modules, "some_library", library)
    with pytest.raises(ModuleNotFoundError, match="neighbour"):
        import_object("uses.Mine")


@pytest.mark.parametrize(("names", "module", "code"), [("one_file", "late", 1), ("one_file", "one_file", 0)])
def test_a_process_that_is_started_later_finds_what_was_found(names: str, module: str, code: int) -> None:
    command = [sys.executable, "-P", "-c", f"import seqlab.cli, {module}"]
    done = subprocess.run(command, env={**os.environ, NAMED: names}, capture_output=True, timeout=300)
    assert done.returncode == code, done.stderr


def test_a_folder_without_code_is_no_package() -> None:
    """Torch would take a model repository in `triton` for the compiler of that name."""
    os.environ[NAMED] = "model_repository,nothing"
    assert importlib.util.find_spec("model_repository") is None
    assert importlib.util.find_spec("nothing") is None


def test_what_is_installed_comes_first() -> None:
    os.environ[NAMED] = "colorsys"
    assert WorkingFolder.find_spec("colorsys") is not None
    assert importlib.util.find_spec("colorsys") == importlib.machinery.PathFinder.find_spec("colorsys")


def test_a_folder_that_was_deleted_has_none(folder: Path) -> None:
    shutil.rmtree(folder)
    os.environ[NAMED] = "one_file"
    assert WorkingFolder.find_spec("one_file") is None


@pytest.mark.slow
def test_a_command_runs_beside_it_and_its_spawned_processes_find_code_too(seqlab: Seqlab, tmp_path: Path) -> None:
    (tmp_path / "triton" / "seqlab_model").mkdir(parents=True)
    (tmp_path / "my_helpers.py").write_text("from seqlab.recurrence import GRU as Base\n", encoding="utf-8")
    (tmp_path / "my_mixers.py").write_text("from my_helpers import Base\n\n\nclass Mine(Base): ...\n", encoding="utf-8")
    spawn = ["--trainer.strategy=ddp_spawn", "--trainer.devices=2", "--trainer.accelerator=cpu"]
    seqlab("fit", "--config", "lm/gru", *TINY, "--model.model.mixer=my_mixers.Mine", *spawn)


@pytest.mark.parametrize("name", ["seqlab", "seqlab.cli"])
def test_python_runs_the_command_as_a_module_and_finds_no_library_there(name: str, tmp_path: Path) -> None:
    for library in ("yaml", "typing_extensions"):
        (tmp_path / f"{library}.py").write_text("raise AssertionError\n", encoding="utf-8")
    command = [sys.executable, "-m", name, "configs", "lm/gru"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (said.returncode, said.stderr) == (0, "") and said.stdout.startswith("# seqlab fit")
    wrong = subprocess.run([*command, "extra"], capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2 and wrong.stderr.startswith("seqlab: ")
