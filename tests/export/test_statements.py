"""Statements of a bundle about itself, its tokenizers and its weights: both runtimes refuse wrong ones."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxscript import ir

from export.planted import failed, proven, reseal, tell_files_of_tokenizer, with_statement, with_tokenizer
from runtime.conftest import Copy
from runtime.programs import run
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture import weights
from seqlab_export.capture.plan import plan_export
from seqlab_export.graphs import export_graphs
from seqlab_export.runner.golden_file import read_golden
from seqlab_export.runner.manifest import BundleError, load_manifest
from seqlab_export.runner.verify import verify_bundle

slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("gru", "first_call", 2),
        ("gru", "seq_len", 31),
        ("gru", "stop_ids", [2]),
        ("gru", "stop_ids", [2, 1, 3]),
        ("gru", "precision", "fp16"),
        ("gru", "precision", "bf16"),
        pytest.param("int8", "precision", "fp16", marks=slow),
        ("gru", "target", "ort"),
        ("gru", "labels", ["x"]),
        ("gru", "min_onnxruntime", "1.0"),
        ("gru", "max_source_len", 5),
        ("attention", "max_seq_len", 64),
    ],
)
def test_a_wrong_statement_is_found(name: str, field: str, value: Any, copy: Copy) -> None:
    with_statement(**{field: value})(folder := copy(name))
    assert failed(folder) == {"statements"}


TOLD = [{"alphabet": "bacdef "}, {"alphabet": "abcdefz"}, {"eos_id": 3}, {"bos_id": 0}, {"pad_id": 1}]
KINDS: list[Any] = ["NoTokenizer", "PretrainedTokenizer", ["CharTokenizer"]]
TEXTS = ['{"class": "ByteTokenizer", "vocab_size": 259, "assets": {}}', "{}", "[]", "null"]


@pytest.mark.parametrize("content", [*TOLD, {"vocab_size": 12}, *({"class": name} for name in KINDS), *TEXTS], ids=str)
def test_a_wrong_tokenizer_is_found(content: dict[str, Any] | str, copy: Copy) -> None:
    folder = copy("gru")
    if isinstance(content, str):
        (folder / "tokenizer" / "tokenizer.json").write_text(content)
    else:
        with_tokenizer(**content)(folder)
    tell_files_of_tokenizer(folder)
    reseal(folder)
    assert failed(folder) == {"texts"}


def at(place: int, factor: float) -> Callable[[Any], Any]:
    return lambda values: values * np.where(np.arange(values.size) == place, factor, 1)


def rewrite(folder: Path, name: str, spoil: Callable[[Any], Any]) -> None:
    """Changes the first tensor of weights.bin whose name ends so, of float32."""
    graph = onnx.load(folder / "step.onnx", load_external_data=False).graph
    tensor = next(some for some in graph.initializer if some.name.endswith(name) and some.external_data)
    offset = int({entry.key: entry.value for entry in tensor.external_data}["offset"])
    path = folder / "weights.bin"
    weights = np.fromfile(path, dtype=np.float32)
    part = weights[offset // 4 :][: int(np.prod(tensor.dims))]
    before = part.copy()
    part[:] = spoil(before)
    assert (part != before).any()
    weights.tofile(path)
    reseal(folder)


UP, DOWN = "up_proj.weight_transposed_scale", "down_proj.weight_transposed_scale"


@pytest.mark.parametrize(
    ("precision", "name", "spoil"),
    [
        pytest.param("int8", UP, at(3, 1.1), marks=slow),
        pytest.param("int8", DOWN, lambda scale: scale * (1 + 1e-6), marks=slow),
        pytest.param("int4", f"{DOWN}s", at(7, 1.1), marks=slow),
        ("attention", "q_proj.weight", at(17, 1.0001)),
        ("attention", "q_proj.weight", lambda q: q.reshape(16, 16).T.ravel()),
        ("attention", "down_proj.weight", lambda w: w * (np.arange(w.size) >= 64)),
    ],
)
def test_a_wrong_scale_or_weight_is_found(precision: str, name: str, spoil: Callable[[Any], Any], copy: Copy) -> None:
    rewrite(folder := copy(precision), name, spoil)
    assert failed(folder) == {"weights"}


def wide() -> DecoderLM:
    """A decoder whose output layer is another matrix than its table, both of which stand in the file of weights."""
    options: dict[str, Any] = {"mixer": GRU, "positions": NoPositions, "tie_embeddings": False}
    return DecoderLM(500, 32, d_model=16, num_layers=1, **options).eval()


@slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_number_of_a_table_output_layer_or_bias_is_found_at_export(precision: Any, tmp_path: Path) -> None:
    """One bit of the bias, which is stored in float32."""
    plan = plan_export(wide(), None, seq_len=32, precision=precision)
    model, named = plan.stored, export_graphs(plan, tmp_path).weights.named
    for name in ("embedding.weight", "head.weight", "stack.blocks.0.ffn.up_proj.bias"):
        last = model.get_parameter(name).data.view(-1)[-1]
        good = last.clone()
        last.copy_(good.nextafter(torch.tensor(2.0)) if name.endswith("bias") else torch.tensor(0.0))
        with pytest.raises(ValueError, match=re.escape(f"its weights do not hold {name} as the model has it")):
            weights.check_weights(model, named)
        last.copy_(good)


def test_weights_that_were_joined_are_compared_part_by_part() -> None:
    k, v = (torch.nn.Linear(4, 3) for _ in "kv")
    model = torch.nn.ModuleDict({"k": k, "v": v})
    whole = torch.cat([k.weight, v.weight]).detach()
    name = "model.k.weight+model.v.weight"
    weights.check_weights(model, [(name, sha256(whole.numpy().tobytes()).digest())])
    whole[-1, -1] = 0
    with pytest.raises(ValueError, match=r"its weights do not hold k\.weight\+model\.v\.weight as the model has it"):
        weights.check_weights(model, [(name, sha256(whole.numpy().tobytes()).digest())])


@slow
def test_a_row_that_is_not_written_is_no_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bug of the exporter: the last row of the output layer."""
    take = weights.WeightFile.take

    def spoil(self: Any, graph: Any) -> None:
        value = graph.graph.initializers["model.head.weight"]
        matrix = value.const_value.numpy().copy()
        matrix[-1] = 0
        value.const_value = ir.tensor(matrix, name=value.name)
        take(self, graph)

    monkeypatch.setattr(weights.WeightFile, "take", spoil)
    with pytest.raises(ValueError, match=r"its weights do not hold head\.weight as the model has it"):
        export_bundle(wide(), None, tmp_path / "bundle", seq_len=32)


def test_unlisted_weights_and_tokenizers_are_refused(copy: Copy) -> None:
    folder = copy("gru")
    files = load_manifest(folder).files
    with_statement(files={name: digest for name, digest in files.items() if name != "weights.bin"})(folder)
    assert [check.subject for check in proven(folder).failures] == ["weights.bin"]
    with_statement(files={name: digest for name, digest in files.items() if "tokenizer" not in name})(folder)
    with pytest.raises(BundleError, match=re.escape("it gives no sha256 of tokenizer/tokenizer.json")):
        verify_bundle(folder)
    assert "it gives no sha256 of tokenizer/tokenizer.json" in run("verify", folder).stderr.decode()


def packed(path: Path) -> None:
    with np.load(path) as arrays:
        np.savez_compressed(path, **{**arrays, "zeros": np.zeros(10**7)})


def test_a_compressed_golden_file_is_refused_however_short_its_content(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(256, size=10**5, dtype=np.uint8)
    np.savez_compressed(tmp_path / "golden.npz", noise=noise)
    assert (tmp_path / "golden.npz").stat().st_size > noise.nbytes + 200
    with pytest.raises(BundleError, match="it is compressed"):
        read_golden(tmp_path / "golden.npz")


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


def test_what_changes_nothing_is_taken(copy: Copy) -> None:
    """Every runtime goes by the names of the state; no tokenizer has a setting of another name."""
    folder = copy("gru")
    with_tokenizer(lowercase=True)(folder)
    tell_files_of_tokenizer(folder)
    reseal(folder)
    with_statement(state=json.loads((folder / "manifest.json").read_text())["state"][::-1])(folder)
    assert not failed(folder)
