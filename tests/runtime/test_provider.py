"""CUDA's libraries are found where NVIDIA's wheels put them, and what is missing is named."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.conftest import Bundle
from runtime.programs import LIBRARY, Command, build, refusal

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(
        LIBRARY is None or not LIBRARY.with_name("libonnxruntime_providers_cuda.so").is_file(),
        reason="this onnxruntime has no CUDA provider",
    ),
]

Refusal = Callable[[], str]


@pytest.fixture(name="packages")
def _packages(tmp_path: Path) -> Path:
    """A site-packages with onnxruntime's library and a CUDA provider that needs one library by its name."""
    build("seqlab-run")
    assert LIBRARY is not None
    packages = tmp_path / "site-packages"
    capi = packages / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    for name in (LIBRARY.name, "libonnxruntime_providers_shared.so"):
        shutil.copy(LIBRARY.with_name(name), capi / name)
    compile_library(tmp_path / "libcublas.so.99")
    compile_library(capi / "libonnxruntime_providers_cuda.so", needs=tmp_path / "libcublas.so.99")
    return packages


@pytest.fixture(name="refused")
def _refused(packages: Path, bundle: Bundle) -> Refusal:
    library = packages / "onnxruntime" / "capi" / LIBRARY.name if LIBRARY else ""
    return lambda: refusal("info", bundle("gru"), "--provider", "cuda", "--ort-lib", library)


def compile_library(path: Path, *, needs: Path | None = None) -> None:
    """An empty library that is found, and finds what it needs, by name alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command: Command = ["c++", "-shared", "-x", "c++", "/dev/null", "-o", path, f"-Wl,-soname,{path.name}"]
    command += ["-x", "none", "-Wl,--no-as-needed", needs] if needs else []
    subprocess.run(command, check=True)


def test_a_missing_library_is_named(refused: Refusal) -> None:
    missing = "libcublas.so.99: cannot open shared object file: No such file or directory"
    assert refused() == f'provider "cuda" cannot be loaded ({missing}); install it, or use another provider'


@pytest.mark.parametrize("folders", [("cu13", "cu13"), ("cuda_runtime", "cublas")], ids=["CUDA 13", "CUDA 12"])
def test_libraries_of_wheels_are_found(folders: tuple[str, str], packages: Path, refused: Refusal) -> None:
    """The one that the provider needs, once the one that this needs is loaded. (The provider itself is empty.)"""
    cudart, cublas = (packages / "nvidia" / folder / "lib" for folder in folders)
    compile_library(cudart / "libcudart.so.99")
    compile_library(cublas / "libcublas.so.99", needs=cudart / "libcudart.so.99")
    (cublas / "libcufft.so.99").write_text("no library")
    said = refused()
    assert said.startswith('provider "cuda" cannot be loaded (') and "GetProvider" in said
    (cudart / "libcudart.so.99").unlink()
    assert "libcublas.so.99: cannot open shared object file" in refused()
