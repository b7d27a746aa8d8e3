"""A model repository for Triton: its configs fit Triton's own schema, and its ensemble answers as the bundle does.

The server's side of ensembles and the Python backend is stood in for here; `test_triton_server.py` runs the server.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format, text_format

from export.planted import HOSTILE, check_none_is_opened
from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.runner.manifest import BundleError, hash_files
from seqlab_export.serving.triton import write_repository

Served = Callable[[str], Path]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
TEXTS = ["abc", "fed a cab"]
KINDS = ["generator", "classifier"]


def load_module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", name="schema")
def _schema() -> Any:
    """Triton's protobuf message of a model's configuration. Its package needs grpcio to be imported whole."""
    client = importlib.util.find_spec("tritonclient")
    assert client is not None and client.submodule_search_locations is not None
    path = Path(client.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    return load_module("model_config_pb2", path).ModelConfig


class Tensor:
    """A stand-in for a tensor of Triton's Python backend."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.as_numpy = lambda: name, lambda: array


class Request:
    def __init__(self, **arrays: np.ndarray) -> None:
        self.inputs = lambda: [Tensor(name, array) for name, array in arrays.items()]


class TritonError(Exception):
    INVALID_ARG = "invalid argument"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        assert code == self.INVALID_ARG


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors or []}
        self.error = error


def read_config(folder: Path, schema: Any) -> dict[str, Any]:
    config = text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), schema())
    return json_format.MessageToDict(config, preserving_proto_field_name=True)


class Ensemble:
    """A repository's ensemble as Triton runs it: a step takes and gives the tensors that its maps name."""

    def __init__(self, repository: Path, name: str, schema: Any) -> None:
        self.config = read_config(repository / name, schema)
        self.steps = {}
        for step in self.config["ensemble_scheduling"]["step"]:
            folder = repository / step["model_name"]
            model = load_module("model", folder / "1" / "model.py").TritonPythonModel()
            stated = json.dumps(read_config(folder, schema))
            model.initialize({"model_config": stated, "model_repository": str(folder), "model_version": "1"})
            self.steps[step["model_name"]] = model

    def ask(self, *requests: dict[str, Any]) -> list[dict[str, Any] | str]:
        """The outputs of each, or its error. A text or an option that is left out is in no tensor."""
        tensors = [{name: as_array(value) for name, value in request.items()} for request in requests]
        errors: dict[int, str] = {}
        for step in self.config["ensemble_scheduling"]["step"]:
            going = [place for place in range(len(requests)) if place not in errors]
            named = step["input_map"].items()
            given = [Request(**{key: tensors[k][name] for key, name in named if name in tensors[k]}) for k in going]
            for place, response in zip(going, self.steps[step["model_name"]].execute(given), strict=True):
                if response.error is not None:
                    errors[place] = str(response.error)
                else:
                    tensors[place] |= {name: response.outputs[key] for key, name in step["output_map"].items()}
        outputs = [output["name"] for output in self.config["output"]]
        return [errors.get(k) or {name: tensors[k][name] for name in outputs} for k in range(len(requests))]


def as_array(value: Any) -> np.ndarray:
    return np.array(value, dtype=np.object_) if isinstance(value, list) else np.array([value])


@pytest.fixture(name="loaded")
def _loaded(served: Served, schema: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Ensemble]:
    """The ensemble of a bundle's repository."""
    backend = ModuleType("triton_python_backend_utils")
    backend.__dict__.update(Tensor=Tensor, InferenceResponse=InferenceResponse, TritonError=TritonError)
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    for module in ("triton_text", "triton_model"):
        monkeypatch.delitem(sys.modules, f"seqlab_export.serving.{module}", raising=False)

    def load(name: str) -> Ensemble:
        write_repository(served(name), tmp_path / "models", name)
        return Ensemble(tmp_path / "models", name, schema)

    return load


@pytest.mark.parametrize("name", KINDS)
def test_the_configs_fit_tritons_schema(name: str, served: Served, schema: Any, tmp_path: Path) -> None:
    """(The server itself checks that each tensor of an ensemble is made once, and is the same wherever it occurs.)"""
    title = 'a "name" of ü'
    models = tmp_path / "not there yet" / "models"
    write_repository(served(name), models, title)
    configs = {folder.name: read_config(folder, schema) for folder in models.iterdir()}
    assert set(configs) == {title, f"{title}_tokenizer", f"{title}_model", f"{title}_detokenizer"}
    assert all(config["name"] == folder for folder, config in configs.items()), "Triton refuses another"
    assert all("max_batch_size" not in config for config in configs.values()), "0 is what is not stated"

    model, ensemble = open_text_model(served(name)), configs[title]
    types = {"int": "TYPE_INT64", "float": "TYPE_FP64", "str": "TYPE_STRING"}
    text, *options = ensemble["input"]
    assert text == {"name": "text", "data_type": "TYPE_STRING", "dims": ["-1"]}
    assert options == [
        {"name": option.name, "data_type": types[option.type.__name__], "dims": ["1"], "optional": True}
        for option in model.options
    ]
    assert {output["name"]: (output["data_type"], output["dims"]) for output in ensemble["output"]} == {
        "text_output" if output == "text" else output: (types[kind.__name__], ["-1"])
        for output, kind in model.outputs.items()
    }


@pytest.mark.parametrize("name", KINDS)
def test_it_answers_as_the_bundle_does(name: str, loaded: Callable[[str], Ensemble], served: Served) -> None:
    found, nothing = loaded(name).ask({"text": [text.encode() for text in TEXTS]}, {"text": []})
    expected = open_text_model(served(name)).answer(TEXTS)
    assert isinstance(found, dict) and isinstance(nothing, dict) and len(found) == len(expected[0])
    for output in expected[0]:
        values = found["text_output" if output == "text" else output]
        answers = [answer[output] for answer in expected]
        assert values.tolist() == [answer.encode() if isinstance(answer, str) else answer for answer in answers]
        assert values.dtype == (np.object_ if isinstance(answers[0], str) else np.float64)
    assert {name: array.shape for name, array in nothing.items()} == {name: (0,) for name in found}


def test_each_request_has_its_own_options_and_errors(loaded: Callable[[str], Ensemble], served: Served) -> None:
    options = {"max_new_tokens": 5, "temperature": 0.5, "seed": 3}
    first, wrong, not_utf8, last = loaded("generator").ask(
        {"text": [b"abc"], **options},
        {"text": [b"abc"], "temperature": -1.0},
        {"text": [b"ab\xff"]},
        {"text": [b"abc"], **options, "top_k": 1},
    )
    model = open_text_model(served("generator"))
    assert first == {"text_output": [model.answer(["abc"], options)[0]["text"].encode()]}
    assert last == {"text_output": [model.answer(["abc"], options | {"top_k": 1})[0]["text"].encode()]}
    assert wrong == "temperature must be at least 0 and finite, got -1.0"
    assert not_utf8 == "the text is not UTF-8 at byte 2; only a byte tokenizer takes any bytes"


@pytest.mark.parametrize(
    ("step", "ids", "lengths", "message"),
    [
        ("model", [[5, 6], [7, 0]], [2], "input_ids has 2 rows, input_lengths 1; give a length for each"),
        ("model", [[5, 6], [7, 0]], [2, 3], "input_lengths has 3, a row of input_ids has 2"),
        ("model", [[5, 6], [7, 0]], [2, -1], "input_lengths has -1, a row of input_ids has 2"),
        ("model", [[5, 6], [7, 0]], [2, 0], "text 1 has no tokens"),
        ("model", [[5, 6], [11, 0]], [2, 1], "text 1 has token 11, outside the vocabulary 0..10"),
        ("model", [[5, -1]], [2], "text 0 has token -1, outside the vocabulary 0..10"),
        ("detokenizer", [[0], [3]], [1, 1], "class 3 does not exist; classes run from 0 to 2"),
        ("detokenizer", [[-1]], [1], "class -1 does not exist; classes run from 0 to 2"),
    ],
)
def test_ids_that_are_refused(
    step: str, ids: list[list[int]], lengths: list[int], message: str, loaded: Callable[[str], Ensemble]
) -> None:
    kind = "input" if step == "model" else "output"
    request = Request(**{f"{kind}_ids": np.array(ids), f"{kind}_lengths": np.array(lengths)})
    (response,) = loaded("classifier").steps[f"classifier_{step}"].execute([request])
    assert str(response.error) == message


def test_only_the_model_is_on_the_gpu_and_holds_the_graphs(served: Served, schema: Any, tmp_path: Path) -> None:
    write_repository(served("generator"), tmp_path / "models", "name", provider="cuda")
    models = tmp_path / "models"
    version = models / "name_model" / "1"
    assert hash_files(version / "bundle") == hash_files(served("generator"))
    assert all((version / name / "__init__.py").is_file() for name in ("seqlab", "seqlab_data", "seqlab_export"))
    assert not list(models.rglob("__pycache__")) and [path.name for path in tmp_path.iterdir()] == ["models"]
    for name in ("name_tokenizer", "name_detokenizer"):
        files = {path.relative_to(models / name / "1" / "bundle") for path in (models / name).rglob("bundle/**/*.*")}
        assert {str(path) for path in files} == {"manifest.json", "tokenizer/tokenizer.json"}
        assert read_config(models / name, schema)["instance_group"] == [{"count": 1, "kind": "KIND_CPU"}]
    config = read_config(models / "name_model", schema)
    assert config["instance_group"] == [{"count": 1, "kind": "KIND_GPU", "gpus": [0]}]
    assert config["parameters"]["provider"] == {"string_value": "cuda"}
    empty = [path for path in models.rglob("*") if path.is_dir() and not list(path.iterdir())]
    assert not empty, "Git and object stores would drop it"


ALONE = """
import sys, types
version = sys.argv[1]
sys.path.insert(0, version)
sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")
sys.modules["onnxruntime"] = None
import model, pathlib
step = model.TritonPythonModel()
step.open(pathlib.Path(version) / "bundle")
import seqlab.decoding, seqlab_data.tokenizers, seqlab_export.serving.triton_text as of_step
assert all(module.__file__.startswith(version) for module in (seqlab.decoding, seqlab_data.tokenizers, of_step))
print(step.codec.source_tokenizer.encode("abc"), step.codec.decode([[0, 1]]))
"""


def test_the_steps_of_texts_need_their_own_files_and_no_onnxruntime(served: Served, tmp_path: Path) -> None:
    write_repository(served("classifier"), tmp_path / "models", "name")
    codec = open_text_model(served("classifier")).codec
    expected = f"{codec.source_tokenizer.encode('abc')} {codec.decode([[0, 1]])}\n"
    for step in ("name_tokenizer", "name_detokenizer"):
        alone = (tmp_path / "models" / step).replace(tmp_path / step)
        done = subprocess.run([sys.executable, "-I", "-c", ALONE, alone / "1"], capture_output=True, text=True)
        assert done.stdout == expected, done.stderr


def test_a_damaged_tokenizer_is_not_loaded(loaded: Callable[[str], Ensemble], tmp_path: Path) -> None:
    ensemble = loaded("generator")
    folder = tmp_path / "models" / "generator_tokenizer" / "1" / "bundle"
    path = folder / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text().replace("abcdef", "abcdeg"))
    with pytest.raises(BundleError, match="tokenizer is not as it was written"):
        ensemble.steps["generator_tokenizer"].open(folder)


def test_a_hostile_bundle_is_not_opened(
    loaded: Callable[[str], Ensemble], served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = loaded("generator")
    monkeypatch.chdir(tmp_path)
    of_tokenizers = [what for what in HOSTILE if what.startswith("tokenizer")]
    for step, done in {"model": HOSTILE, "tokenizer": of_tokenizers, "detokenizer": of_tokenizers}.items():
        check_none_is_opened(served("generator"), tmp_path, ensemble.steps[f"generator_{step}"].open, done)
