"""The web runtime refuses folders that are not a whole bundle, in one sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.planted import HOSTILE
from runtime.conftest import Bundle
from web.programs import refusal

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

Change = Callable[[dict[str, Any]], Any]


def changed(folder: Path, change: Change) -> Path:
    """The bundle with another manifest, which is sealed."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    path.with_suffix(".sha256").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  manifest.json\n")
    return folder


@pytest.fixture(name="folder")
def _folder(bundle: Bundle, tmp_path: Path) -> Path:
    """A bundle that a test may change."""
    return Path(shutil.copytree(bundle("gru"), tmp_path / "bundle"))


CHANGES: dict[str, tuple[Change, str]] = {
    "format": (lambda it: it.update(format="x"), 'the manifest lacks "format": "seqlab-bundle"'),
    "version": (lambda it: it.update(version=5), "the manifest has version 5, this program reads version 7"),
    "version as a float": (lambda it: it.update(version=7.0), "the manifest.version must be a whole number"),
    "unknown": (lambda it: it.update(more=1), "the manifest has more, which nothing here knows"),
    "missing": (lambda it: it.pop("labels"), "the manifest lacks labels"),
    "zero": (lambda it: it.update(seq_len=0), "the manifest.seq_len must be a whole number from 1 to 2^40, got 0"),
    "huge": (lambda it: it.update(seq_len=2**40 + 1), "the manifest.seq_len must be a whole number from 1 to 2^40"),
    "half": (
        lambda it: it.update(vocab_size=1.5),
        "the manifest.vocab_size must be a whole number from 1 to 2^40, got 1.5",
    ),
    "a text": (lambda it: it.update(labels="a"), "the manifest.labels must be a list"),
    "precision": (lambda it: it.update(precision="fp8"), "the manifest.precision must be one of fp32, fp16"),
    "target": (lambda it: it.update(target=None), "the manifest.target must be one of portable, ort, cuda-graph"),
    "no graph": (lambda it: it.update(step=None), "the manifest has neither an encoder nor both graphs of a decoder"),
    "dtype": (lambda it: it["state"][0].update(dtype="int8"), "the manifest.state[0].dtype must be one of bool, int64"),
    "dims": (lambda it: it["state"][0].update(dims=["T"]), "state entry position has dims T, which must begin with B"),
    "negative": (
        lambda it: it["state"][1].update(dims=["B", -1]),
        "the manifest.state[1].dims[1] must be a whole number",
    ),
    "large": (lambda it: it["state"][1].update(dims=["B", 2**40]), "the state takes"),
    "start": (lambda it: it["state"][0].update(initial=None), "state entry position starts as nothing says"),
    "no tokens": (lambda it: it["model"]["inputs"].pop(0), "model.onnx takes no tokens, or no pad_mask"),
    "vocabulary": (lambda it: it.update(vocab_size=7), "model.onnx gives no logits (B, T, 7)"),
    "stop": (lambda it: it.update(stop_ids=[99]), "stop_ids has 99, which is outside the vocabulary"),
    "outside": (lambda it: it["files"].update({"../x": "0" * 64}), '"../x" is not a path inside the bundle'),
    "digest": (lambda it: it["files"].update({"x": "0"}), 'the sha256 of x is "0"'),
    "golden": (lambda it: it.update(golden="x"), "the manifest gives no sha256 of x"),
    "no version": (lambda it: it.update(min_onnxruntime="new"), '"new" is not a version of onnxruntime'),
    "provenance": (
        lambda it: it["provenance"].update(commit=1),
        "the manifest.provenance.commit must be a string, got 1",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_of_nonsense(name: str, folder: Path) -> None:
    change, said = CHANGES[name]
    assert refusal(changed(folder, change)).startswith(f"manifest.json: {said}")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xef\xbb\xbf{}", b"\xff", b'{"a": "\\ud800"}', b"[" * 100_000, b"NaN"]
)
def test_what_is_no_json(content: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(content)
    assert refusal(folder).startswith("manifest.json: the manifest is not JSON")


def test_another_onnxruntime_and_no_bundle(folder: Path) -> None:
    changed(folder, lambda it: it.update(min_onnxruntime="2.0"))
    assert refusal(folder).startswith("this bundle needs onnxruntime 2.0, here is onnxruntime-web 1.")
    (folder / "manifest.json").unlink()
    assert refusal(folder) == "this is not a bundle: it has no manifest.json"


def test_files_that_are_others(folder: Path) -> None:
    said = "this bundle is not as it was written: "
    (folder / "more.txt").touch()
    assert refusal(folder) == f"{said}more.txt: the manifest does not list it"
    (folder / "step.onnx").unlink()
    assert refusal(folder) == f"{said}step.onnx: it is missing"
    (folder / "manifest.sha256").unlink()
    assert refusal(folder) == f"{said}manifest.sha256: it is missing"


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.split()[0] not in ("tokenizer", "tokenizer's")])
def test_what_is_hostile_is_refused(name: str, folder: Path) -> None:
    HOSTILE[name](folder)
    assert refusal(folder)
