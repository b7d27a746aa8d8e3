"""Statements of a bundle about itself, its tokenizers and its weights: both runtimes refuse wrong ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxscript import ir

from export.planted import failed, proven, reseal, tell_files_of_tokenizer
from export.toys import TOKENIZER, Shared, toy
from once import once
from runtime.programs import run
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture import weights
from seqlab_export.capture.precision import in_dtype
from seqlab_export.graphs import export_graphs
from seqlab_export.passes import quantize
from seqlab_export.runner.golden_file import read_golden
from seqlab_export.runner.manifest import BundleError, load_manifest
from seqlab_export.runner.verify import verify_bundle

Copy = Callable[[str], Path]


@pytest.fixture(scope="module", name="quantized")
def _quantized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def export(precision: Any, folder: Path) -> Path:
        model, out = toy(Attention, RoPE, 1), folder / "bundle"
        export_bundle(model, TOKENIZER, out, run_id="", commit="", seq_len=32, precision=precision)
        return out

    return cache(lambda precision: once(f"toy-{precision}", partial(export, precision), tmp_path_factory))


@pytest.fixture(name="copy")
def _copy(shared: Shared, quantized: Callable[[str], Path], tmp_path: Path) -> Copy:
    """A bundle that a test may spoil."""

    def copy(name: str) -> Path:
        folder = shared(name).folder if name in ("gru", "attention") else quantized(name)
        return Path(shutil.copytree(folder, tmp_path / "bundle"))

    return copy


def state(folder: Path, **fields: Any) -> None:
    """Writes another manifest and seals it."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    path.with_suffix(".sha256").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  manifest.json\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("gru", {"first_call": 2}),
        ("gru", {"seq_len": 31}),
        ("gru", {"stop_ids": [2]}),
        ("gru", {"stop_ids": [2, 1, 3]}),
        ("gru", {"precision": "fp16"}),
        ("gru", {"precision": "bf16"}),
        ("int8", {"precision": "fp16"}),
        ("gru", {"target": "ort"}),
        ("gru", {"labels": ["x"]}),
        ("gru", {"min_onnxruntime": "1.0"}),
        ("gru", {"max_source_len": 5}),
        ("attention", {"max_seq_len": 64}),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else value,
)
def test_a_wrong_statement_is_found(name: str, fields: dict[str, Any], copy: Copy) -> None:
    state(folder := copy(name), **fields)
    assert failed(folder) == {"statements"}


def swapped(tokenizer: dict[str, Any]) -> dict[str, Any]:
    alphabet = tokenizer["alphabet"]
    return tokenizer | {"alphabet": alphabet[1] + alphabet[0] + alphabet[2:]}


@pytest.mark.parametrize(
    "content",
    [
        swapped,
        lambda tokenizer: tokenizer | {"alphabet": tokenizer["alphabet"][:-1] + "z"},
        lambda tokenizer: tokenizer | {"eos_id": 3},
        lambda tokenizer: tokenizer | {"bos_id": 0},
        lambda tokenizer: tokenizer | {"pad_id": 1},
        lambda tokenizer: tokenizer | {"class": "NoTokenizer"},
        lambda tokenizer: tokenizer | {"class": "PretrainedTokenizer"},
        lambda tokenizer: tokenizer | {"class": ["CharTokenizer"]},
        lambda tokenizer: tokenizer | {"vocab_size": 12},
        lambda tokenizer: {"class": "ByteTokenizer", "vocab_size": 259, "assets": {}},
        lambda tokenizer: {},
        lambda tokenizer: [],
        lambda tokenizer: None,
    ],
    ids=[
        "swapped",
        "another",
        "eos",
        "bos",
        "pad",
        "unknown",
        "missing",
        "list",
        "size",
        "bytes",
        "empty",
        "nothing",
        "null",
    ],
)
def test_a_wrong_tokenizer_is_found(content: Callable[[Any], Any], copy: Copy) -> None:
    path = (folder := copy("gru")) / "tokenizer" / "tokenizer.json"
    path.write_text(json.dumps(content(json.loads(path.read_text()))))
    tell_files_of_tokenizer(folder)
    reseal(folder)
    assert failed(folder) == {"texts"}


def offset_of(folder: Path, name: str) -> tuple[int, list[int]]:
    """The offset in weights.bin of the first tensor whose name ends so, and its dimensions."""
    graph = onnx.load(folder / "step.onnx", load_external_data=False).graph
    tensor = next(some for some in graph.initializer if some.name.endswith(name) and some.external_data)
    return int({entry.key: entry.value for entry in tensor.external_data}["offset"]), [*tensor.dims]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bundle", "name", "spoil"),
    [
        ("int8", "up_proj.weight_transposed_scale", lambda scale: scale * np.where(np.arange(scale.size) == 3, 1.1, 1)),
        ("int8", "up_proj.weight_transposed_scale", lambda scale: scale * 1.01),
        ("int8", "down_proj.weight_transposed_scale", lambda scale: scale * (1 + 1e-6)),
        ("int4", "up_proj.weight_transposed_scales", lambda scale: scale * 1.01),
        (
            "int4",
            "down_proj.weight_transposed_scales",
            lambda scale: scale * np.where(np.arange(scale.size) == 7, 1.1, 1),
        ),
        ("attention", "q_proj.weight", lambda weight: weight * np.where(np.arange(weight.size) == 17, 1.0001, 1)),
        ("attention", "down_proj.weight", lambda weight: weight * np.where(np.arange(weight.size) < 64, 0, 1)),
    ],
    ids=["int8-channel", "int8-layer", "int8-rounding", "int4-layer", "int4-block", "weight", "row"],
)
def test_a_wrong_scale_or_weight_is_found(bundle: str, name: str, spoil: Callable[[Any], Any], copy: Copy) -> None:
    offset, dims = offset_of(folder := copy(bundle), name)
    with (folder / "weights.bin").open("r+b") as file:
        file.seek(offset)
        values = np.frombuffer(file.read(4 * int(np.prod(dims))), dtype=np.float32)
        new = spoil(values).astype(np.float32)
        assert (new != values).any()
        file.seek(offset)
        file.write(new.tobytes())
    reseal(folder)
    assert failed(folder) == {"weights"}


def wide(vocab_size: int, precision: Any = "fp32") -> DecoderLM:
    """A decoder of many tokens, whose output layer is another matrix than its table."""
    model = DecoderLM(vocab_size, 32, d_model=16, num_layers=1, mixer=GRU, positions=NoPositions, tie_embeddings=False)
    return in_dtype(model.eval(), precision)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_zeroed_row_of_a_table_or_output_layer_is_found_at_export(precision: Any, tmp_path: Path) -> None:
    """Any of 20,000; or a bias of 64 numbers that differs by a bit."""
    model = wide(20_000, precision)
    exported = export_graphs(model, tmp_path, precision)
    weights.check_weights(model, exported.named)
    rows = np.random.default_rng(torch.initial_seed()).integers(20_000, size=5).tolist()
    places = [(name, row) for name in ("embedding.weight", "head.weight") for row in rows]
    for name, row in [*places, ("stack.blocks.0.ffn.up_proj.bias", 17)]:
        good = model.get_parameter(name).detach().clone()
        with torch.no_grad():
            model.get_parameter(name)[row] = 0 if good.dim() > 1 else good[row].nextafter(torch.tensor(2.0))
        with pytest.raises(ValueError, match=re.escape(f"its weights do not hold {name} as the model has it")):
            weights.check_weights(model, exported.named)
        with torch.no_grad():
            model.get_parameter(name).copy_(good)


@pytest.mark.slow
def test_a_table_that_is_written_wrongly_is_no_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bug of the exporter: the last row of the output layer is not written."""
    take = weights.WeightFile.take

    def spoil(self: Any, graph: Any) -> None:
        value = graph.graph.initializers["model.head.weight"]
        matrix = value.const_value.numpy().copy()
        matrix[-1] = 0
        value.const_value = ir.tensor(matrix, name=value.name)
        take(self, graph)

    monkeypatch.setattr(weights.WeightFile, "take", spoil)
    with pytest.raises(ValueError, match=r"its weights do not hold head\.weight as the model has it"):
        export_bundle(wide(40), None, tmp_path / "bundle", run_id="", commit="", seq_len=32)


@pytest.mark.slow
def test_a_zeroed_row_of_20000_is_refused(tmp_path: Path) -> None:
    export_bundle(wide(20_000), None, tmp_path / "good", run_id="", commit="", seq_len=32)
    assert not failed(tmp_path / "good")
    rows = np.random.default_rng(torch.initial_seed()).integers(20_000, size=5).tolist()
    for name, row in [(name, row) for name in ("embedding.weight", "head.weight") for row in rows]:
        folder = Path(shutil.copytree(tmp_path / "good", tmp_path / f"{name}-{row}"))
        offset, dims = offset_of(folder, name)
        assert dims == [20_000, 16]
        with (folder / "weights.bin").open("r+b") as file:
            file.seek(offset + 64 * row)
            file.write(bytes(64))
        reseal(folder)
        assert failed(folder) == {"weights"}


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_wrong_quantising_is_found_at_export(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(40, 11)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23]> g (float[B, 40] x) => (float[B, 11] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    graph = ir.from_proto(model)
    quantize.quantize(graph, precision)
    name = f"_{precision}"
    original = getattr(quantize, name)

    def spoil(model: Any, kept: list[str]) -> Any:
        found = original(model, kept)
        for tensor in found.graph.initializer:
            if tensor.name in ("w_scale", "w_scales"):
                scale = onnx.numpy_helper.to_array(tensor).copy()
                scale.flat[3] *= 1.0001
                tensor.CopyFrom(onnx.numpy_helper.from_array(scale, tensor.name))
        return found

    monkeypatch.setattr(quantize, name, spoil)
    with pytest.raises(ValueError, match="quantising of w gave other scales or weights"):
        quantize.quantize(graph, precision)


@pytest.mark.parametrize("name", ["notes.txt", "tokenizer/more.json", "other/weights.bin", "link"])
def test_a_file_that_is_not_listed_is_refused(name: str, copy: Copy) -> None:
    path = (folder := copy("gru")) / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("step.onnx") if name == "link" else path.write_text("more")
    assert [(check.subject, check.note) for check in proven(folder).failures] == [
        (name, "the manifest does not list it")
    ]
    assert f"{name}: the manifest does not list it" in run("info", folder).stderr.decode()


def test_unlisted_weights_and_tokenizers_are_refused(copy: Copy) -> None:
    folder = copy("gru")
    files = load_manifest(folder).files
    state(folder, files={name: digest for name, digest in files.items() if name != "weights.bin"})
    assert [check.subject for check in proven(folder).failures] == ["weights.bin"]
    state(folder, files={name: digest for name, digest in files.items() if "tokenizer" not in name})
    with pytest.raises(BundleError, match=re.escape("it gives no sha256 of tokenizer/tokenizer.json")):
        verify_bundle(folder)
    assert "it gives no sha256 of tokenizer/tokenizer.json" in run("verify", folder).stderr.decode()


def packed(path: Path) -> None:
    with np.load(path) as arrays:
        np.savez_compressed(path, **{**arrays, "zeros": np.zeros(10**7)})


def said_to_be_longer(path: Path) -> None:
    """The header of an array says that it has 10^10 numbers."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    name, shape, longer = "length 64/tokens.npy", b"(10, 64), }     ", b"(9999999999,), }"
    assert shape in entries[name]
    entries[name] = entries[name].replace(shape, longer)
    with zipfile.ZipFile(path, "w") as file:
        for entry, content in entries.items():
            file.writestr(entry, content)


@pytest.mark.parametrize("spoil", [packed, said_to_be_longer, lambda path: path.write_bytes(path.read_bytes()[:-30])])
def test_a_golden_file_is_refused_before_it_is_unpacked(spoil: Callable[[Path], Any], copy: Copy) -> None:
    folder = copy("gru")
    spoil(folder / "golden.npz")
    reseal(folder)
    with pytest.raises(BundleError, match=r"golden\.npz: "):
        read_golden(folder / "golden.npz")
    with pytest.raises(BundleError):
        verify_bundle(folder)
    assert run("verify", folder).returncode == 2


def test_a_golden_file_has_half_a_megabyte_whatever_the_vocabulary(shared: Shared) -> None:
    assert (shared("attention").folder / "golden.npz").stat().st_size < 400_000


@pytest.mark.parametrize("spoil", ["state", "lowercase"])
def test_what_changes_nothing_is_taken(spoil: str, copy: Copy) -> None:
    """Every runtime goes by the names of the state; no tokenizer has a setting of another name."""
    folder = copy("gru")
    if spoil == "state":
        state(folder, state=json.loads((folder / "manifest.json").read_text())["state"][::-1])
    else:
        path = folder / "tokenizer" / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"lowercase": True}))
        tell_files_of_tokenizer(folder)
        reseal(folder)
    assert not failed(folder)
