"""The repository in a real Triton server, of the wheel `nvidia-pytriton`, with ensembles and the Python backend."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.serving.triton import write_repository
from servers import free_port, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or sys.version_info >= (3, 13), reason="the wheel is for Linux, and for NumPy 1"
    ),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch's exporter
]
SERVER = "nvidia-pytriton==0.7.0"
NEEDED = ("numpy<2", "onnxruntime>=1.30", "sentencepiece")
TEXTS = ["abc", "fed a cab"]
OPTIONS: dict[str, dict[str, Any]] = {
    "generator": {"max_new_tokens": 12, "temperature": 0.7, "top_k": 5, "seed": 3},
    "translator": {"beams": 3, "length_penalty": 0.5, "prefix": "ab"},
    "classifier": {},
    "tagger": {},
}
TYPES = {int: "INT64", float: "FP64", str: "BYTES"}


@pytest.fixture(scope="module", name="triton")
def _triton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the server, and what a repository needs."""
    folder = tmp_path_factory.mktemp("triton")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *NEEDED], check=True)
    subprocess.run([*pip, "--no-deps", SERVER], check=True)
    return folder


@contextmanager
def serving(triton: Path, repository: Path) -> Iterator[str]:
    """The address of a server of the repository."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    server = triton / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
    stub = server / "backends" / "python" / "triton_python_backend_stub"
    shutil.copy(server / "python_backend_stubs" / version / stub.name, stub)
    for program in (stub, server / "bin" / "tritonserver"):
        program.chmod(0o755)
    libraries = [sysconfig.get_config_var("LIBDIR"), str(server.parents[1] / "nvidia_pytriton.libs")]
    environment = {"PATH": f"{triton}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": ":".join(libraries)}
    port = free_port()
    command: list[str | Path] = [server / "bin" / "tritonserver", f"--model-repository={repository}"]
    command += [f"--backend-directory={server / 'backends'}", "--http-address=127.0.0.1", f"--http-port={port}"]
    command += ["--allow-grpc=false", "--allow-metrics=false"]
    address = f"http://127.0.0.1:{port}/v2"
    with running(command, environment, f"{address}/health/ready", repository.parent):
        yield address


def post(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, or the error."""
    try:
        with urllib.request.urlopen(address, json.dumps(request).encode()) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def infer(address: str, model: str, **inputs: tuple[str, Any]) -> dict[str, Any]:
    """The outputs by name, or the error. Each input is a type and nested lists."""
    given = [
        {"name": name, "datatype": kind, "shape": list(np.shape(values)), "data": values}
        for name, (kind, values) in inputs.items()
    ]
    found = post(f"{address}/models/{model}/infer", {"inputs": given})
    outputs = found.pop("outputs", [])
    return {one["name"]: np.reshape(one["data"], one["shape"]).tolist() for one in outputs} or found


def test_it_serves_every_kind_of_bundle(triton: Path, served: Callable[[str], Path], tmp_path: Path) -> None:
    repository = tmp_path / "models"
    repository.mkdir()
    for name in OPTIONS:
        write_repository(served(name), tmp_path / "one", name)
        for folder in (tmp_path / "one").iterdir():
            folder.replace(repository / folder.name)
        (tmp_path / "one").rmdir()
    with serving(triton, repository) as address:
        for name, options in OPTIONS.items():
            model = open_text_model(served(name))
            types = {option.name: TYPES[option.type] for option in model.options}
            expected = model.answer(TEXTS, options)
            found = post(f"{address}/models/{name}/generate", {"text": TEXTS, **options})
            for output in expected[0]:
                answers = found["text_output" if output == "text" else output]
                assert answers == pytest.approx([answer[output] for answer in expected]), (name, found)
            rows, scores = model.run(model.codec.encode(TEXTS), options)
            first, second = model.codec.encode(TEXTS)
            found = infer(
                address,
                f"{name}_model",
                input_ids=("INT64", [[*first, *[0] * (len(second) - len(first))], second]),
                input_lengths=("INT64", [len(first), len(second)]),
                **{option: (types[option], [value]) for option, value in options.items()},
            )
            cut = [ids[:length] for ids, length in zip(found["output_ids"], found["output_lengths"], strict=True)]
            assert cut == rows, (name, found)
            assert {score: found[score] for score in scores} == {k: pytest.approx(v) for k, v in scores.items()}
        for name, inputs, sentence in REFUSED:
            refused = post(f"{address}/models/{name}/generate", inputs)
            assert refused == {"error": f"in ensemble '{name}', {sentence}"}
        wrong = infer(address, "tagger_model", input_ids=("INT64", [[4, 99]]), input_lengths=("INT64", [2]))
        assert wrong == {"error": "text 0 has token 99, outside the vocabulary 0..10"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("generator", {"text": "abc", "temperature": -1.0}, "temperature must be at least 0 and finite, got -1.0"),
    ("translator", {"text": ["abc"], "beams": 0}, "beams must be at least 1, got 0"),
    ("classifier", {"text": " "}, "text 0 is empty"),
]
