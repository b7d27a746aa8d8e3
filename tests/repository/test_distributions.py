"""Contents of the wheel and the sdist."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import seqlab
from repository.source_tree import PACKAGES, ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both, built from a copy of the sources in which runs have left their traces."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("platform", "datamodules", "export", "studies", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "build", "mlruns"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "constraints.txt"):
        shutil.copy(ROOT / name, copy / name)
    for trace in ("mlruns/mlflow.db", "mlruns/1/abc/artifacts/last.ckpt", ".venv/pyvenv.cfg", "bundles/a/model.onnx"):
        (copy / trace).parent.mkdir(parents=True, exist_ok=True)
        (copy / trace).write_text("trace")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(copy / "dist")]
    run = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return copy / "dist"


def test_the_wheel_holds_the_packages_their_configs_and_the_command(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    for package, folder in PACKAGES.items():
        kept = {".py", ".yaml", ".json", ".typed"}
        files = [path for path in folder.rglob("*") if path.suffix in kept and "build" not in path.parts]
        expected = {f"{package}/{path.relative_to(folder)}" for path in files}
        assert f"{package}/__init__.py" in expected and expected <= names
    assert {"seqlab/configs/lm/gru.yaml", "seqlab/configs/presets/gpt2.yaml", "seqlab_studies/worksheet.md"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "seqlab = seqlab.cli:main" in archive.read(entry_points).decode()


def test_the_sdist_holds_no_traces_of_runs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "platform/seqlab/__init__.py"} <= names
    assert not {name for name in names if name.startswith(("mlruns", ".venv", "bundles", "dist"))}


@pytest.fixture(name="empty")
def _empty(tmp_path: Path) -> Path:
    """The interpreter of an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    return tmp_path / "empty" / "bin" / "python"


def install(python: Path, *what: str | Path) -> Path:
    """Installs it, and returns the command, of which two options need nothing else."""
    pip: list[str | Path] = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *what], check=True)
    command = python.with_name("seqlab")
    assert subprocess.check_output([command, "--version"], text=True) == f"{seqlab.__version__}\n"
    assert "fit" in subprocess.check_output([command, "--help"], text=True)
    return command


@pytest.mark.slow
def test_the_sdist_installs_in_an_empty_environment(built: Path, empty: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    install(empty, "--no-deps", sdist)


@pytest.mark.slow
def test_the_wheel_installs_in_an_empty_environment_and_fits(built: Path, empty: Path, tmp_path: Path) -> None:
    """With all that it needs, in the versions of constraints.txt."""
    [wheel] = built.glob(f"seqlab-{seqlab.__version__}-*.whl")
    command = install(empty, "--constraint", ROOT / "constraints.txt", "torch==2.13.0", wheel)
    fit = [str(command), "fit", "--config=lm/gru", "--trainer.fast_dev_run=true"]
    done = subprocess.run(fit, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pip_installs_a_clean_clone(built: Path, tmp_path: Path) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *install, str(built.parent)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    command = [sys.executable, str(tmp_path / "bin" / "seqlab"), "configs", "lm/gru"]
    shown = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout == (tmp_path / "seqlab/configs/lm/gru.yaml").read_text(encoding="utf-8"), shown.stderr
