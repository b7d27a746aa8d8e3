"""A model repository for Triton: its config fits Triton's own schema, and its model answers as the bundle does.

The server's side of the Python backend is stood in for here; `test_triton_server.py` runs the server.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf import json_format, text_format

from seqlab_export.manifest import hash_files
from seqlab_export.text_model import open_text_model
from seqlab_export.triton import write_repository

Served = Callable[[str], Path]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
TEXTS = ["abc", "fed a cab"]
KINDS = ["generator", "classifier", *(pytest.param(name, marks=pytest.mark.slow) for name in ("translator", "tagger"))]


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


class Tensor(NamedTuple):
    """As Triton's, of the Python backend."""

    the_name: str
    array: np.ndarray

    def name(self) -> str:
        return self.the_name

    def as_numpy(self) -> np.ndarray:
        return self.array


class Request(NamedTuple):
    tensors: list[Tensor]

    def inputs(self) -> list[Tensor]:
        return self.tensors


class TritonError(Exception):
    INVALID_ARG = "invalid argument"


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor] | None = None, error: TritonError | None = None) -> None:
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors or []}
        self.error = error


@pytest.fixture(name="loaded")
def _loaded(served: Served, schema: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The model of a bundle's repository, as Triton loads it."""
    backend = ModuleType("triton_python_backend_utils")
    backend.__dict__.update(Tensor=Tensor, InferenceResponse=InferenceResponse, TritonError=TritonError)
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    monkeypatch.delitem(sys.modules, "seqlab_export.triton_model", raising=False)

    def load(name: str) -> Any:
        write_repository(served(name), tmp_path / "models", name)
        folder = tmp_path / "models" / name
        config = text_format.Parse((folder / "config.pbtxt").read_text(), schema())
        model = load_module("model", folder / "1" / "model.py").TritonPythonModel()
        stated = json_format.MessageToJson(config, preserving_proto_field_name=True)
        model.initialize({"model_config": stated, "model_repository": str(folder), "model_version": "1"})
        return model

    return load


def request(texts: list[bytes], **options: Any) -> Request:
    tensors = [Tensor("text", np.array(texts, dtype=np.object_))]
    return Request(tensors + [Tensor(name, np.array([value])) for name, value in options.items()])


@pytest.mark.parametrize("name", KINDS)
def test_the_config_fits_tritons_schema(name: str, served: Served, schema: Any, tmp_path: Path) -> None:
    write_repository(served(name), tmp_path / "models", 'a "name" of ü')
    (folder,) = (tmp_path / "models").iterdir()
    config = text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), schema())
    assert config.name == folder.name == 'a "name" of ü', "Triton refuses a model whose folder is named otherwise"
    stated = json_format.MessageToDict(config, preserving_proto_field_name=True)
    assert stated["backend"] == "python" and "max_batch_size" not in stated, "0 is what is not stated"
    model = open_text_model(served(name))
    text, *options = stated["input"]
    assert text == {"name": "text", "data_type": "TYPE_STRING", "dims": ["-1"]}
    types = {"int": "TYPE_INT64", "float": "TYPE_FP64", "str": "TYPE_STRING"}
    assert options == [
        {"name": option, "data_type": types[kind.__name__], "dims": ["1"], "optional": True}
        for option, kind in model.option_types().items()
    ]
    assert stated["output"] == [
        {"name": output, "data_type": types[kind.__name__], "dims": ["-1"]} for output, kind in model.outputs.items()
    ]


def test_the_schema_refuses_what_is_not_in_it(schema: Any) -> None:
    with pytest.raises(text_format.ParseError):
        text_format.Parse('name: "a" max_batchsize: 0', schema())
    with pytest.raises(text_format.ParseError):
        text_format.Parse('input { name: "text" data_type: TYPE_TEXT }', schema())


@pytest.mark.parametrize("name", KINDS)
def test_it_answers_as_the_bundle_does(name: str, loaded: Callable[[str], Any], served: Served) -> None:
    (response,) = loaded(name).execute([request([text.encode() for text in TEXTS])])
    expected = open_text_model(served(name)).answer(TEXTS)
    assert list(response.outputs) == list(expected[0])
    for output, values in response.outputs.items():
        answers = [answer[output] for answer in expected]
        assert values.tolist() == [answer.encode() if isinstance(answer, str) else answer for answer in answers]
        assert values.dtype == (np.object_ if isinstance(answers[0], str) else np.float64)


def test_each_request_has_its_own_options_and_errors(loaded: Callable[[str], Any], served: Served) -> None:
    options = {"max_new_tokens": 5, "temperature": 0.5, "seed": 3}
    first, wrong, not_utf8, last = loaded("generator").execute(
        [
            request([b"abc"], **options),
            request([b"abc"], temperature=-1.0),
            request([b"ab\xff"]),
            request([b"abc"], **options, top_k=1),
        ]
    )
    model = open_text_model(served("generator"))
    assert first.outputs["text"].tolist() == [model.answer(["abc"], options)[0]["text"].encode()]
    assert last.outputs["text"].tolist() == [model.answer(["abc"], options | {"top_k": 1})[0]["text"].encode()]
    assert "temperature must be at least 0" in str(wrong.error) and not wrong.outputs
    assert "the text is not UTF-8 at byte 2" in str(not_utf8.error)


@pytest.mark.slow
def test_a_prefix_is_text(loaded: Callable[[str], Any], served: Served) -> None:
    (response,) = loaded("translator").execute([request([b"abc"], beams=2, prefix=b"fed")])
    expected = open_text_model(served("translator")).answer(["abc"], {"beams": 2, "prefix": "fed"})
    assert response.outputs["text"].tolist() == [expected[0]["text"].encode()]
    assert response.outputs["text"][0].startswith(b"fed")


def test_it_holds_the_bundle_and_the_code_that_runs_it(served: Served, tmp_path: Path) -> None:
    write_repository(served("generator"), tmp_path / "models", "name", provider="cuda")
    version = tmp_path / "models" / "name" / "1"
    assert hash_files(version / "bundle") == hash_files(served("generator"))
    assert all((version / name / "__init__.py").is_file() for name in ("seqlab", "seqlab_data", "seqlab_export"))
    assert not list(version.rglob("__pycache__")) and [path.name for path in tmp_path.iterdir()] == ["models"]
    config = (version.parent / "config.pbtxt").read_text()
    assert "kind: KIND_GPU gpus: [ 0 ]" in config and json.dumps("cuda") in config


@pytest.mark.slow
def test_a_bundle_that_is_not_of_texts_is_refused(served: Served, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not of texts"):
        write_repository(served("masked"), tmp_path / "models", "name")
    assert not list(tmp_path.iterdir())
