"""The web runtime refuses folders that are not a whole bundle, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from export.planted import HOSTILE, with_statement
from runtime.conftest import Copy
from runtime.programs import refusal as refused_by_cpp
from web.programs import refusal

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(name="folder")
def _folder(copy: Copy) -> Path:
    """A bundle that a test may change."""
    return copy("gru")


GONE = object()
WHOLE_NUMBER = "must be a whole number from 1 to 2^40"
CHANGES: list[tuple[list[Any], Any, str]] = [
    (["format"], "x", 'the manifest lacks "format": "seqlab-bundle"'),
    (["version"], 5, "the manifest has version 5, this program reads version 10; export it again"),
    (["version"], 10.0, "the manifest.version must be a whole number"),
    (["more"], 1, "the manifest has more, which nothing here knows"),
    (["labels"], GONE, "the manifest lacks labels"),
    (["seq_len"], 0, f"the manifest.seq_len {WHOLE_NUMBER}, got 0"),
    (["seq_len"], 2**40 + 1, f"the manifest.seq_len {WHOLE_NUMBER}"),
    (["vocab_size"], 1.5, f"the manifest.vocab_size {WHOLE_NUMBER}, got 1.5"),
    (["labels"], "a", "the manifest.labels must be a list"),
    (["precision"], "fp8", "the manifest.precision must be one of fp32, fp16"),
    (["target"], None, "the manifest.target must be one of portable, ort, cuda-graph"),
    (["step"], None, "the manifest has neither an encoder nor both graphs of a decoder"),
    (["state", 0, "dtype"], "int8", "the manifest.state[0].dtype must be one of bool, int64"),
    (["state", 0, "dims"], ["T"], "state entry position has dims T, which must begin with B"),
    (["state", 1, "dims"], ["B", -1], "the manifest.state[1].dims[1] must be a whole number"),
    (["state", 1, "dims"], ["B", 2**40], "the state takes"),
    (["state", 0, "initial"], None, "state entry position has no initial value and the bundle has no encoder"),
    (["model", "inputs", 0], GONE, "model.onnx takes no tokens"),
    (["model", "inputs", -1], GONE, "model.onnx takes no scored"),
    (["vocab_size"], 7, "model.onnx gives no logits of vocab_size 7"),
    (["stop_ids"], [99], "stop_ids has 99, which is outside the vocabulary"),
    (["files", "../x"], "0" * 64, '"../x" is not a path inside the bundle'),
    (["files", "x"], "0", 'the sha256 of x is "0"'),
    (["golden"], "x", "the manifest gives no sha256 of x"),
    (["min_onnxruntime"], "new", '"new" is not a version of onnxruntime'),
    (["provenance", "commit"], 1, "the manifest.provenance.commit must be a string, got 1"),
]


@pytest.mark.parametrize(("place", "value", "said"), CHANGES, ids=[said[:40] for *_, said in CHANGES])
def test_a_manifest_of_nonsense(place: list[Any], value: Any, said: str, folder: Path) -> None:
    path = folder / "manifest.json"
    content = within = json.loads(path.read_text())
    for key in place[:-1]:
        within = within[key]
    if value is GONE:
        within.pop(place[-1])
    else:
        within[place[-1]] = value
    path.write_text(json.dumps(content))
    with_statement()(folder)
    assert refusal(folder).startswith(f"manifest.json: {said}")


def test_an_encoder_that_gives_no_state(copy: Copy) -> None:
    folder = copy("translator")
    encoder = json.loads((folder / "manifest.json").read_text())["encoder"]
    first, *others = encoder["outputs"]
    with_statement(encoder=encoder | {"outputs": others})(folder)
    said = f"manifest.json: {encoder['file']} gives no {first['name']}"
    assert refusal(folder) == said and refused_by_cpp("info", folder).endswith(said)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xef\xbb\xbf{}", b"\xff", b'{"a": "\\ud800"}', b"[" * 100_000, b"NaN"]
)
def test_what_is_no_json(content: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(content)
    assert refusal(folder).startswith("manifest.json: the manifest is not JSON")


def test_another_onnxruntime_and_no_bundle(folder: Path) -> None:
    with_statement(min_onnxruntime="2.0")(folder)
    assert refusal(folder).startswith("this bundle needs onnxruntime 2.0, here is onnxruntime-web 1.")
    (folder / "manifest.json").unlink()
    assert refusal(folder) == "this is not a bundle: it has no manifest.json"


def test_files_that_are_others(folder: Path) -> None:
    said = "this bundle is not as it was written: "
    (folder / "more.txt").touch()
    assert refusal(folder) == f"{said}more.txt: the manifest does not list it"
    for name in ("step.onnx", "manifest.sha256"):
        (folder / name).unlink()
        assert refusal(folder) == f"{said}{name}: it is missing"


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.split()[0] not in ("tokenizer", "tokenizer's")])
def test_what_is_hostile_is_refused(name: str, folder: Path) -> None:
    HOSTILE[name](folder)
    assert refusal(folder)
