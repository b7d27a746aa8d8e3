"""The manifest says what it must, and is refused in one sentence where it does not."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from export.toys import Shared
from seqlab_export.runner.manifest import FORMAT, BundleError, load_manifest
from seqlab_export.runner.schema import json_schema

CORPUS = Path(__file__).parents[2] / "export" / "runtime" / "fuzz" / "corpus"


@pytest.fixture(name="content")
def _content(shared: Shared) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((shared("attention").folder / "manifest.json").read_text())
    return content


def load(content: Any, folder: Path) -> Any:
    (folder / "manifest.json").write_text(json.dumps(content))
    return load_manifest(folder)


def test_it_comes_back_as_it_was_written(shared: Shared, tmp_path: Path) -> None:
    folder = shared("attention").folder
    load_manifest(folder).save(tmp_path)
    for name in ("manifest.json", "manifest.sha256"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    subprocess.run(["sha256sum", "--check", "--strict", "manifest.sha256"], cwd=folder, check=True)


def test_what_it_says(shared: Shared, content: dict[str, Any]) -> None:
    model, folder, _ = shared("attention")
    assert (content["format"], content["version"], content["seq_len"]) == (FORMAT, 7, 32)
    assert (content["precision"], content["vocab_size"], content["max_seq_len"]) == ("fp32", model.vocab_size, None)
    assert content["provenance"]["run_id"] == "a run" and content["provenance"]["commit"] == "a commit"
    assert content["model"]["inputs"][0] == {"name": "tokens", "dtype": "int64", "dims": ["B", "T"]}
    assert content["step"]["outputs"][0] == {"name": "logits", "dtype": "float32", "dims": ["B", 1, model.vocab_size]}
    assert content["state"][2] == {"name": "0_k", "dtype": "float32", "dims": ["B", 4, "S", 4], "initial": 0.0}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    del files["manifest.json"], files["manifest.sha256"]
    assert files["golden.npz"].stat().st_size < 400_000, "whatever the vocabulary"
    assert content["files"] == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def test_its_json_schema_is_the_published_one_and_says_what_the_reader_does(content: dict[str, Any]) -> None:
    published = Path(__file__).parents[2] / "docs" / "manifest.schema.json"
    schema = json.loads(published.read_text(encoding="utf-8"))
    assert schema == json_schema(), "python -m seqlab_export.runner.schema > docs/manifest.schema.json writes it anew"
    checker = Draft202012Validator(schema)
    checker.check_schema(schema)
    checker.validate(content)
    wrong: dict[str, Any] = {"version": 1, "vocab_size": "11", "precision": "fp8", "another": 1}
    wrong |= {"state/0/dtype": "float64", "files/golden.npz": "0" * 63}
    for path, value in wrong.items():
        changed = copy.deepcopy(content)
        change(changed, path, value)
        assert not checker.is_valid(changed), path
    del content["first_call"]
    assert not checker.is_valid(content)


def test_the_fuzz_corpus_begins_with_manifests_that_are_accepted(tmp_path: Path) -> None:
    seeds = [*CORPUS.glob("manifest-*")]
    assert seeds
    for seed in seeds:
        load(json.loads(seed.read_bytes()[1:]), tmp_path)


def change(content: dict[str, Any], path: str, value: Any) -> None:
    place: Any = content
    *parents, last = [int(name) if name.isdigit() else name for name in path.split("/")]
    for name in parents:
        place = place[name]
    place[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "other", f'it lacks "format": "{FORMAT}"'),
        ("version", 1, "has version 1, this program reads version 7"),
        ("vocab_size", "11", "the manifest.vocab_size must be int, got '11'"),
        ("vocab_size", True, "the manifest.vocab_size must be int, got True"),
        ("vocab_size", 12, "model.onnx gives no logits of vocab_size 12"),
        ("max_seq_len", 1.5, "the manifest.max_seq_len must be int, got 1.5"),
        ("stop_ids", [11], "stop_ids has 11, which is outside the vocabulary"),
        ("stop_ids", [-1], "stop_ids has -1, which is outside the vocabulary"),
        ("stop_ids", ["2"], "the manifest.stop_ids.0. must be int, got '2'"),
        ("first_call", 0, "first_call must be at least 1, got 0"),
        ("min_onnxruntime", "new", "'new' is not a version of onnxruntime"),
        ("model/inputs/0/dtype", "float8", "tokens has dtype 'float8', accepted are bool, int64, float16, float32"),
        ("model/inputs/0/dims", "BT", "the manifest.model.inputs.0..dims must be tuple, got 'BT'"),
        ("model/inputs/0/more", 1, "the manifest.model.inputs.0. has 'more', which nothing here knows"),
        ("state/0", 7, "the manifest.state.0. must be an object with name, dtype, dims, initial, got 7"),
        ("state/0/initial", "0", "the manifest.state.0..initial must be float, got '0'"),
        ("step", None, "it has neither an encoder nor both graphs of a decoder"),
        ("files", [], "the manifest.files must be dict, got "),
        ("files/step.onnx", "abc", "the sha256 of step.onnx is 'abc'"),
        ("tokenizer", "../tokenizer", "'../tokenizer' is not a path inside the bundle"),
        ("model/file", "other.onnx", "it gives no sha256 of other.onnx"),
    ],
)
def test_what_is_refused(content: dict[str, Any], path: str, value: Any, message: str, tmp_path: Path) -> None:
    change(content, path, value)
    with pytest.raises(BundleError, match=message):
        load(content, tmp_path)


@pytest.mark.parametrize("name", ["/etc/passwd", "../weights.bin", "a/../../b", "", "..\\weights.bin"])
def test_files_outside_are_refused(content: dict[str, Any], name: str, tmp_path: Path) -> None:
    content["files"][name] = "0" * 64
    with pytest.raises(BundleError, match="is not a path inside the bundle"):
        load(content, tmp_path)


def test_what_is_missing_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is not a bundle: it has no manifest.json"):
        load_manifest(tmp_path)
    del content["golden"]
    with pytest.raises(BundleError, match="the manifest lacks golden"):
        load(content, tmp_path)
