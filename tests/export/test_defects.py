"""The proof can fail: each defect, planted in a bundle that was good, is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from export.planted import Edit, edit_graph, failed, proven, read_in_place_of, reseal
from export.toys import Exported, Shared
from runtime.programs import refusal
from seqlab_export.runner.manifest import BundleError, load_manifest
from seqlab_export.runner.verify import verify_bundle


@pytest.fixture(name="copy")
def _copy(shared: Shared, tmp_path: Path) -> Callable[[str], Path]:
    """A bundle of "attention" or "gru" that a test may spoil."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(shared(name).folder, tmp_path / "bundle"))

    return copy


def ignore_padding(model: ModelProto) -> None:
    nodes = [
        helper.make_node("Not", ["pad_mask"], ["padding"]),
        helper.make_node("Or", ["pad_mask", "padding"], ["all_real"]),
    ]
    read_in_place_of(model, "pad_mask", nodes, "all_real")


def start_one_later(model: ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1]))
    add = helper.make_node("Add", ["state_position", "one"], ["later"])
    read_in_place_of(model, "state_position", [add], "later")


def forget_the_cache_mask(model: ModelProto) -> None:
    nodes = [
        helper.make_node("Not", ["state_key_mask"], ["padding"]),
        helper.make_node("Or", ["state_key_mask", "padding"], ["all_keys"]),
    ]
    read_in_place_of(model, "state_key_mask", nodes, "all_keys")


def align_the_past_wrongly(model: ModelProto) -> None:
    """Keys of the cache stand one place after their values."""
    bounds = {"zero": 0, "last": -1, "end": 2**62, "time": 2}
    model.graph.initializer.extend(helper.make_tensor(k, onnx.TensorProto.INT64, [1], [v]) for k, v in bounds.items())
    nodes = [
        helper.make_node("Slice", ["state_0_k", "last", "end", "time"], ["newest_key"]),
        helper.make_node("Slice", ["state_0_k", "zero", "last", "time"], ["older_keys"]),
        helper.make_node("Concat", ["newest_key", "older_keys"], ["late_keys"], axis=2),
    ]
    read_in_place_of(model, "state_0_k", nodes, "late_keys")


def swap_outputs(model: ModelProto) -> None:
    names = {"new_state_0_k": "new_state_1_k", "new_state_1_k": "new_state_0_k"}
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]


def reset_before_the_product(model: ModelProto) -> None:
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "linear_before_reset":
                attribute.i = 0


def forget_lengths(model: ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "GRU":
            node.input[4] = ""


def with_attribute(op_type: str, name: str, value: float) -> Edit:
    def edit(model: ModelProto) -> None:
        for node in model.graph.node:
            if node.op_type == op_type:
                kept = [attribute for attribute in node.attribute if attribute.name != name]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def freeze_length(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 16


GRAPH_DEFECTS: list[tuple[str, str, Edit, set[str]]] = [
    ("attention", "model.onnx", ignore_padding, {"prefill", "chunks", "long"}),
    ("attention", "step.onnx", ignore_padding, {"step", "long"}),
    ("attention", "model.onnx", forget_the_cache_mask, {"chunks", "long"}),
    ("attention", "step.onnx", start_one_later, {"step", "long"}),
    ("attention", "model.onnx", start_one_later, {"prefill", "chunks", "long"}),
    ("attention", "model.onnx", align_the_past_wrongly, {"chunks", "long"}),
    ("attention", "step.onnx", align_the_past_wrongly, {"step", "long"}),
    ("attention", "model.onnx", swap_outputs, {"prefill", "chunks", "long"}),
    ("attention", "model.onnx", with_attribute("Attention", "scale", 0.51), {"prefill", "chunks", "long"}),
    (
        "attention",
        "model.onnx",
        with_attribute("LayerNormalization", "epsilon", 2e-5),
        {"prefill", "chunks", "long"},
    ),
    ("attention", "model.onnx", freeze_length, {"signature"}),
    ("gru", "model.onnx", reset_before_the_product, {"prefill", "chunks", "long"}),
    ("gru", "model.onnx", forget_lengths, {"prefill", "chunks", "long"}),
    ("gru", "step.onnx", ignore_padding, {"step", "long"}),
]
"""A bundle, the graph of it that is spoilt, how, and the kinds of checks that fail then."""


@pytest.mark.parametrize(
    ("bundle", "file", "edit", "expected"),
    GRAPH_DEFECTS,
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_wrong_graph_is_found(
    copy: Callable[[str], Path], bundle: str, file: str, edit: Edit, expected: set[str]
) -> None:
    folder = copy(bundle)
    edit_graph(folder, file, edit)
    assert failed(folder) == expected


def test_the_graphs_share_their_weights_and_a_wrong_one_is_found_in_both(copy: Callable[[str], Path]) -> None:
    folder = copy("attention")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    [weight] = [tensor for tensor in model.graph.initializer if tensor.name.endswith("blocks.0.mixer.q_proj.weight")]
    place = {entry.key: entry.value for entry in weight.external_data}
    weights = np.fromfile(folder / "weights.bin", dtype=np.float32)
    start = int(place["offset"]) // 4
    square = weights[start : start + weight.dims[0] * weight.dims[1]].reshape(tuple(weight.dims))
    square[:] = square.T.copy()
    weights.tofile(folder / "weights.bin")
    reseal(folder)
    assert failed(folder) == {"weights"}


def test_weights_rounded_to_half_precision_are_found(copy: Callable[[str], Path]) -> None:
    folder = copy("gru")
    weights = np.fromfile(folder / "weights.bin", dtype=np.float32)
    weights.astype(np.float16).astype(np.float32).tofile(folder / "weights.bin")
    reseal(folder)
    assert failed(folder) == {"weights"}


@pytest.mark.parametrize("file", ["model.onnx", "step.onnx", "weights.bin", "golden.npz", "tokenizer/tokenizer.json"])
def test_one_flipped_bit_is_found_in_any_file(copy: Callable[[str], Path], file: str) -> None:
    folder = copy("attention")
    data = bytearray((folder / file).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / file).write_bytes(data)
    report = proven(folder)
    assert [(check.kind, check.subject) for check in report.failures] == [("files", file)]


@pytest.mark.parametrize("file", ["step.onnx", "weights.bin", "tokenizer/tokenizer.json"])
def test_a_missing_file_is_found(copy: Callable[[str], Path], file: str) -> None:
    folder = copy("attention")
    (folder / file).unlink()
    assert [(check.subject, check.note) for check in proven(folder).failures] == [(file, "it is missing")]


@pytest.mark.parametrize("name", ["weights.bin", "tokenizer/tokenizer.json", "manifest.sha256", "manifest.json"])
def test_a_link_out_of_the_bundle_is_found(name: str, copy: Callable[[str], Path]) -> None:
    folder = copy("attention")
    outside = folder.parent / Path(name).name
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    if name == "manifest.json":  # which is read before anything is proven
        with pytest.raises(BundleError, match=r"manifest\.json: it is a link out of the bundle"):
            proven(folder)
        return
    [failure] = proven(folder).failures
    assert (failure.subject, failure.note) == (name, "it is a link out of the bundle")


@pytest.mark.parametrize("size", [0, 100, -3])
def test_a_truncated_manifest_is_found(copy: Callable[[str], Path], size: int) -> None:
    path = copy("attention") / "manifest.json"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BundleError, match=r"manifest.json is not JSON"):
        verify_bundle(path.parent)
    assert "is not JSON" in refusal("verify", path.parent)


def test_a_changed_manifest_is_found(copy: Callable[[str], Path]) -> None:
    path = copy("gru") / "manifest.json"
    path.write_text(path.read_text().replace('"initial": 0.0', '"initial": 0.5'))
    [failure] = proven(path.parent).failures
    assert (failure.kind, failure.subject) == ("files", "manifest.json")
    assert failure.note == "its sha256 is not the one in manifest.sha256"


def test_a_manifest_without_its_seal_is_found(copy: Callable[[str], Path]) -> None:
    folder = copy("gru")
    (folder / "manifest.sha256").unlink()
    [failure] = proven(folder).failures
    assert (failure.subject, failure.note) == ("manifest.sha256", "it is missing")


def test_a_wrong_start_of_the_state_is_found(copy: Callable[[str], Path]) -> None:
    folder = copy("gru")
    manifest = load_manifest(folder)
    position, hidden, *others = manifest.state
    replace(manifest, state=(position, replace(hidden, initial=0.5), *others)).save(folder)
    assert failed(folder) == {"prefill", "chunks", "step", "long"}


def test_a_golden_file_that_proves_less_is_found(copy: Callable[[str], Path]) -> None:
    folder = copy("gru")
    with np.load(folder / "golden.npz") as file:
        arrays = {name: file[name] for name in file if not name.startswith("length 17/")}
        assert len(arrays) < len(file.files)
    np.savez(folder / "golden.npz", **arrays)
    reseal(folder)
    failures = proven(folder).failures
    assert {check.subject for check in failures} == {f"batch {size}, length 17" for size in (1, 2, 9)}


def test_verify_changes_nothing(shared: Shared) -> None:
    def content(exported: Exported) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in exported.folder.rglob("*") if path.is_file()}

    exported = shared("attention")
    before = content(exported)
    assert verify_bundle(exported.folder).ok
    assert content(exported) == before
