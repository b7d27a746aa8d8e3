"""The repository in a real Triton server, of the wheel `nvidia-pytriton`, which has the Python backend alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seqlab_export.text_model import open_text_model
from seqlab_export.triton import write_repository

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or sys.version_info >= (3, 13), reason="the wheel is for Linux, and for NumPy 1"
    ),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch's exporter
]
SERVER = "nvidia-pytriton==0.7.0"
NEEDED = ("numpy<2", "onnxruntime>=1.30", "sentencepiece")


@pytest.fixture(scope="module", name="triton")
def _triton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the server, and what a repository needs."""
    folder = tmp_path_factory.mktemp("triton")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *NEEDED], check=True)
    subprocess.run([*pip, "--no-deps", SERVER], check=True)
    return folder


@contextmanager
def running(triton: Path, repository: Path, log: Path) -> Iterator[str]:
    """The address of a server of the repository; it is gone afterwards, whatever happens."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    server = triton / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
    stub = server / "backends" / "python" / "triton_python_backend_stub"
    shutil.copy(server / "python_backend_stubs" / version / stub.name, stub)
    for program in (stub, server / "bin" / "tritonserver"):
        program.chmod(0o755)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    libraries = [sysconfig.get_config_var("LIBDIR"), str(server.parents[1] / "nvidia_pytriton.libs")]
    environment = {"PATH": f"{triton}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": ":".join(libraries)}
    command = [server / "bin" / "tritonserver", f"--model-repository={repository}"]
    command += [f"--backend-directory={server / 'backends'}", "--http-address=127.0.0.1", f"--http-port={port}"]
    command += ["--allow-grpc=false", "--allow-metrics=false"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    address = f"http://127.0.0.1:{port}/v2"
    try:
        for _ in range(300):
            assert process.poll() is None, log.read_text(errors="replace")
            try:
                with urllib.request.urlopen(f"{address}/health/ready"):
                    break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(address: str, model: str, **inputs: Any) -> dict[str, Any]:
    """What a model's `generate` endpoint answers, or why it does not."""
    try:
        with urllib.request.urlopen(f"{address}/models/{model}/generate", json.dumps(inputs).encode()) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def test_it_serves_every_kind_of_bundle(triton: Path, served: Callable[[str], Path], tmp_path: Path) -> None:
    repository, texts = tmp_path / "models", ["abc", "fed a cab"]
    options = {
        "generator": {"max_new_tokens": 12, "temperature": 0.7, "top_k": 5, "seed": 3},
        "translator": {"beams": 3, "length_penalty": 0.5, "prefix": "ab"},
        "classifier": {},
        "tagger": {},
    }
    repository.mkdir()
    for name in options:
        write_repository(served(name), tmp_path / "one", name)
        (tmp_path / "one" / name).replace(repository / name)
    with running(triton, repository, tmp_path / "log") as address:
        for name, chosen in options.items():
            found = ask(address, name, text=texts, **chosen)
            expected = open_text_model(served(name)).answer(texts, chosen)
            for output in expected[0]:
                assert found[output] == pytest.approx([answer[output] for answer in expected]), (name, found)
        assert ask(address, "generator", text="abc", temperature=-1.0) == {
            "error": "temperature must be at least 0 and finite, got -1.0"
        }
        assert ask(address, "classifier", text=" ") == {"error": "text 0 is empty"}
