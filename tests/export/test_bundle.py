"""A bundle is whole and proven, or absent, and says nothing of the machine it was made on. Its manifest says what it
must, and is refused in one sentence where it does not."""

from __future__ import annotations

import copy
import getpass
import hashlib
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from jsonschema import Draft202012Validator
from torch import Tensor, nn

from export.toys import TOKENIZER, Shared, export_toy, toy
from seqlab.attention import Attention
from seqlab.mixer import Mixer, State, StateEntry, StateSpec
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import ByteTokenizer
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.lowering import standard
from seqlab_export.runner.cases import traced_len
from seqlab_export.runner.manifest import FORMAT, BundleError, load_manifest
from seqlab_export.runner.schema import json_schema

slow = pytest.mark.slow


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_secrets(folder: Path, *more: str) -> None:
    telling = [str(folder.parent), str(Path.home()), "site-packages", ".py", "Traceback", f"{gettempdir()}/", *more]
    for name, data in files_of(folder).items():
        assert not [word for word in telling if word.encode() in data], name


@slow
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int8"},
        {"precision": "int4"},
        {"precision": "bf16", "taps": ["attention", "state"]},
        {"target": "ort", "taps": ["attention", "state"]},
    ],
    ids=["int8", "int4", "bf16 and taps", "ort and taps"],
)
def test_two_exports_are_equal_in_every_byte_and_tell_nothing_of_the_machine(options: Any, tmp_path: Path) -> None:
    model = toy(partial(Attention, num_heads=2), NoPositions, 1)
    for name in ("first", "second"):
        export_bundle(model, TOKENIZER, tmp_path / name, seq_len=32, **options)
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    check_secrets(tmp_path / "first")


def test_its_files_tell_nothing_of_the_machine_and_hold_weights_once(shared: Shared) -> None:
    model, folder, _ = shared("attention")
    user = getpass.getuser()
    check_secrets(folder, type(model).__name__, *([user] if len(user) > 4 else []))
    assert len(files_of(folder)) == 7
    assert (folder / "weights.bin").stat().st_size <= sum(parameter.numel() * 4 for parameter in model.parameters())


def test_both_graphs_have_each_weight_as_the_model_has_it(shared: Shared) -> None:
    model, folder, _ = shared("attention")
    weights = {name: value for name, value in model.state_dict().items() if value.dim() == 2 and value.nbytes >= 1024}
    assert len(weights) > 4
    for file in ("model.onnx", "step.onnx"):
        found = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(folder / file).graph.initializer}
        for name, value in weights.items():
            np.testing.assert_array_equal(found[f"model.{name}"], value.float().numpy())


def test_what_exists_is_not_overwritten(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    for out in (tmp_path, tmp_path / "precious"):
        with pytest.raises(ValueError, match="exists and is not an empty folder; give a new one"):
            export_bundle(shared("gru").model, TOKENIZER, out, seq_len=32)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@slow
def test_a_bundle_that_fails_its_proof_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, gates, _ = standard._OPERATORS["GRU"]
    monkeypatch.setitem(standard._OPERATORS, "GRU", (operator, gates, {"linear_before_reset": 0}))
    said = r"the bundle was not written: .* checks failed, the first in prefill"
    with pytest.raises(ParityError, match=said) as error:
        export_toy(toy(GRU, NoPositions, 1), tmp_path / "bundle")
    assert {check.kind for check in error.value.report.failures} == {"prefill", "chunks", "long"}
    assert not list(tmp_path.iterdir())


@slow
def test_a_short_reach_is_proven_and_the_model_stays_as_it_was(tmp_path: Path) -> None:
    model = toy(Attention, lambda d_model, _: Learned(d_model, 6), 1).double().train()
    (tmp_path / "bundle").mkdir()  # an empty folder will do
    report = export_toy(model, tmp_path / "bundle").report
    assert report.ok and (load_manifest(tmp_path / "bundle").max_seq_len, traced_len(6)) == (6, 2)
    lengths = {int(check.subject.split()[3].rstrip(",")) for check in report.checks if check.kind == "step"}
    assert lengths == {1, 2, 3}  # four times 2 is out of reach
    assert model.training and model.embedding.weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int2"}, "precision must be one of fp32, fp16, bf16, int8, int4, got 'int2'"),
        ({"target": "npu"}, "target must be one of portable, ort, cuda-graph, got 'npu'"),
        ({"provider": "tpu"}, "provider must be one of cpu, cuda, cuda-tf32, got 'tpu'"),
        ({"tokenizer": ByteTokenizer()}, "the tokenizer has 259 tokens and the model 11"),
        ({"model": nn.Linear(1, 1)}, r"a bundle is of one of DecoderLM, .*; this is a Linear"),
        ({"taps": ["weights"]}, "a tap is one of attention, state, got 'weights'"),
        ({"taps": ["attention"]}, "tap attention finds nothing in this model, a DecoderLM; leave it out"),
        ({"taps": ["state"], "precision": "int8"}, "taps are of fp32, fp16 and bf16 bundles; this one is int8"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": toy(GRU, NoPositions, 1), "tokenizer": TOKENIZER} | options
    with pytest.raises(ValueError, match=message):
        export_bundle(out=tmp_path / "bundle", seq_len=32, **given)
    assert not list(tmp_path.iterdir())


class Plain(Mixer):
    """Passes x on; its state is whatever a test makes of it."""

    def forward(self, x: Tensor, state: State | None = None, **_: Tensor | None) -> tuple[Tensor, State]:
        return x, self.init_state(x.shape[0]) if state is None else state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return x_t, state

    def state_spec(self) -> StateSpec:
        return (StateEntry("h", (2,), initial=1.0),)


class Uneven(Plain):
    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        return {"h": torch.arange(2.0).expand(batch_size, 2)}


class Carrying(Plain):
    def __init__(self, d_model: int, layer: int = 0, *, carried: Callable[[Tensor], State]) -> None:
        super().__init__(d_model, layer)
        self.carried = carried

    def forward(self, x: Tensor, state: State | None = None, **_: Tensor | None) -> tuple[Tensor, State]:
        return x, self.carried(x)


doubling = partial(Carrying, carried=lambda x: {"h": torch.ones(len(x), 2 ** (1 + x.shape[1]))})
narrowing = partial(Carrying, carried=lambda x: {"h": torch.ones(len(x), 2, dtype=torch.int64)})
forgetting = partial(Carrying, carried=lambda x: {})
DECLARED = r"state entry 0_h is declared by state_spec as \(B, 2\) in torch.float32, but is "


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (Uneven, "state entry 0_h is declared to start at 1.0, and does not"),
        (doubling, DECLARED + r"\(2, 8\) in torch.float32 after 2 tokens"),
        (narrowing, DECLARED + r"\(2, 2\) in torch.int64 after 2 tokens"),
        (forgetting, r"state_spec declares the entries \['position', '0_h'\], but the state has \['position'\]"),
    ],
)
def test_a_mixer_that_a_bundle_cannot_hold_is_refused(mixer: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_toy(toy(mixer, NoPositions, 1), tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


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
    assert (content["format"], content["version"], content["seq_len"]) == (FORMAT, 10, 32)
    assert (content["precision"], content["vocab_size"], content["max_seq_len"]) == ("fp32", model.vocab_size, None)
    assert content["provenance"]["run_id"] == "a run" and content["provenance"]["commit"] == "a commit"
    assert content["model"]["inputs"][0] == {"name": "tokens", "dtype": "int64", "dims": ["B", "T"]}
    assert content["step"]["outputs"][0] == {"name": "logits", "dtype": "float32", "dims": ["B", 1, model.vocab_size]}
    assert content["state"][2] == {"name": "0_k", "dtype": "float32", "dims": ["B", 4, "S", 4], "initial": 0.0}
    files = files_of(folder)
    del files["manifest.json"], files["manifest.sha256"]
    assert len(files["golden.npz"]) < 400_000, "whatever the vocabulary"
    assert content["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


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
        ("version", 1, "has version 1, this program reads version 10; export it again"),
        ("vocab_size", "11", "the manifest.vocab_size must be a whole number from 1 to 2.40, got '11'"),
        ("vocab_size", True, "the manifest.vocab_size must be a whole number from 1 to 2.40, got True"),
        ("vocab_size", 12, "model.onnx gives no logits of vocab_size 12"),
        ("max_seq_len", 1.5, "the manifest.max_seq_len must be a whole number from 1 to 2.40, got 1.5"),
        ("stop_ids", [11], "stop_ids has 11, which is outside the vocabulary"),
        ("stop_ids", [-1], "the manifest.stop_ids.0. must be a whole number from 0 to 2.40, got -1"),
        ("stop_ids", ["2"], "the manifest.stop_ids.0. must be a whole number from 0 to 2.40, got '2'"),
        ("first_call", 0, "the manifest.first_call must be a whole number from 1 to 2.40, got 0"),
        ("min_onnxruntime", "new", "'new' is not a version of onnxruntime"),
        ("model/inputs/0/dtype", "float8", "dtype must be one of bool, int64, float16, float32, got 'float8'"),
        ("model/inputs/0/dims", "BT", "the manifest.model.inputs.0..dims must be a list, got 'BT'"),
        ("model/inputs/0/more", 1, "the manifest.model.inputs.0. has 'more', which nothing here knows"),
        ("state/0", 7, "the manifest.state.0. must be an object with name, dtype, dims, initial, got 7"),
        ("state/0/initial", "0", "the manifest.state.0..initial must be a finite number, got '0'"),
        ("step", None, "it has neither an encoder nor both graphs of a decoder"),
        ("files", [], "the manifest.files must be an object, got "),
        ("files/step.onnx", "abc", "the sha256 of step.onnx is 'abc'"),
        ("tokenizer", "../tokenizer", "'../tokenizer' is not a path inside the bundle"),
        ("model/file", "other.onnx", "it gives no sha256 of other.onnx"),
    ],
)
def test_a_wrong_field_is_refused(content: dict[str, Any], path: str, value: Any, message: str, tmp_path: Path) -> None:
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
