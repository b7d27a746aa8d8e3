"""Defects planted in copies of good bundles, with hashes made right again, and what both runtimes say of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

from cli.hostile import CANARY, write_traps
from runtime.programs import run
from seqlab_export.runner.manifest import hash_files, load_manifest
from seqlab_export.runner.report import Report
from seqlab_export.runner.texts import digest_of_files
from seqlab_export.runner.verify import verify_bundle

Edit = Callable[[ModelProto], None]


def reseal(folder: Path) -> None:
    """Recomputes the hashes of the files."""
    replace(load_manifest(folder), files=hash_files(folder)).save(folder)


def tell_files_of_tokenizer(folder: Path) -> None:
    """Recomputes the hash of the tokenizer's files in the golden file, so that only its behaviour gives it away."""
    digest = digest_of_files("tokenizer", hash_files(folder))
    with np.load(folder / "golden.npz") as arrays:
        if "tokenizer/files" in arrays and not np.array_equal(arrays["tokenizer/files"], digest):
            np.savez(folder / "golden.npz", allow_pickle=False, **(dict(arrays) | {"tokenizer/files": digest}))


def edit_graph(folder: Path, file: str, edit: Edit) -> None:
    model = onnx.load(folder / file, load_external_data=False)
    before = model.SerializeToString()
    edit(model)
    assert model.SerializeToString() != before
    (folder / file).write_bytes(model.SerializeToString())
    reseal(folder)


def with_tokenizer(**content: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "tokenizer" / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | content))
        reseal(folder)

    return spoil


def with_statement(**fields: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_suffix(".sha256").write_text(f"{digest}  manifest.json\n")

    return spoil


def with_weights_at(place: str) -> Callable[[Path], None]:
    def edit(model: ModelProto) -> None:
        tensor = next(some for some in model.graph.initializer if some.external_data)
        next(entry for entry in tensor.external_data if entry.key == "location").value = place

    return lambda folder: edit_graph(folder, "model.onnx", edit)


def with_node_of_another_library(folder: Path) -> None:
    edit_graph(folder, "model.onnx", lambda model: setattr(model.graph.node[0], "domain", "com.evil"))


HOSTILE = {
    **{
        f"tokenizer {name}": with_tokenizer(**{"class": name}) for name in ("os.system", "evil.Evil", "StoredTokenizer")
    },
    "tokenizer's files": with_tokenizer(assets={"../../evil.py": "0" * 64}),
    **{f"tokenizer in {place}": with_statement(tokenizer=place) for place in ("../evil", "/etc", "evil.py")},
    **{f"weights at {place}": with_weights_at(place) for place in ("../../evil.pt", "/etc/hostname")},
    "a node": with_node_of_another_library,
    "code beside it": lambda folder: (folder / "sitecustomize.py").touch(),
}
"""Edits after which a server would import or read something outside the bundle."""


def check_none_is_opened(
    bundle: Path, folder: Path, open_it: Callable[[Path], object], done: Iterable[str] = HOSTILE
) -> None:
    """Applies `done` to copies of a bundle in the working folder `folder`; `open_it` must refuse each, unread."""
    if not (folder / "evil.py").exists():
        write_traps(folder)
    for what in done:
        shutil.rmtree(folder / "hostile", ignore_errors=True)
        HOSTILE[what](copy := Path(shutil.copytree(bundle, folder / "hostile" / "bundle")))
        with pytest.raises((ValueError, OSError)):
            print(what, open_it(copy))
        assert not (folder / CANARY).exists() and "evil" not in sys.modules


def proven(folder: Path) -> Report:
    """The report of `seqlab verify`; `seqlab-run verify` comes to the same verdict."""
    return _both(folder)[0]


def failed(folder: Path) -> set[str]:
    """The kinds of checks that fail in both runtimes, which must agree."""
    report, failed_in_cpp = _both(folder)
    kinds = {check.kind for check in report.failures}
    assert kinds == failed_in_cpp
    return kinds


def _both(folder: Path) -> tuple[Report, set[str]]:
    report = verify_bundle(folder)
    done = run("verify", folder, "--json")
    assert done.returncode == (0 if report.ok else 1) and report.ok == (not report.failures), done
    return report, {check["kind"] for check in json.loads(done.stdout)["checks"] if not check["ok"]}


def read_in_place_of(model: ModelProto, name: str, nodes: list[NodeProto], new_name: str) -> None:
    """Whatever reads `name` reads `new_name`, which `nodes` compute from it."""
    for node in model.graph.node:
        for k, value in enumerate(node.input):
            if value == name:
                node.input[k] = new_name
    for node in reversed(nodes):
        model.graph.node.insert(0, node)


def written_in_place_of(model: ModelProto, name: str, nodes: list[NodeProto], old_name: str) -> None:
    """The output `name` is what `nodes` make of what it was, `old_name`."""
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [old_name if value == name else value for value in values]
    model.graph.node.extend(nodes)


def constants(model: ModelProto, **values: int | float | list[int]) -> None:
    """Adds initializers of these names, int64 or float32."""
    for name, value in values.items():
        kind = onnx.TensorProto.FLOAT if isinstance(value, float) else onnx.TensorProto.INT64
        dims = [len(value)] if isinstance(value, list) else []
        numbers = value if isinstance(value, list) else [value]
        model.graph.initializer.append(helper.make_tensor(name, kind, dims, numbers))


def shift_positions_from_64(model: ModelProto) -> None:
    constants(model, first_wrong=64)
    nodes = [
        helper.make_node("GreaterOrEqual", ["state_position", "first_wrong"], ["is_wrong"]),
        helper.make_node("Cast", ["is_wrong"], ["shift"], to=onnx.TensorProto.INT64),
        helper.make_node("Add", ["state_position", "shift"], ["shifted"]),
    ]
    read_in_place_of(model, "state_position", nodes, "shifted")


def clamp_positions_at_300(model: ModelProto) -> None:
    constants(model, highest=300)
    read_in_place_of(
        model, "state_position", [helper.make_node("Min", ["state_position", "highest"], ["clamped"])], "clamped"
    )


def stale_cache_past_300(model: ModelProto) -> None:
    """Replaces each key past position 300 with that of position 300."""
    constants(model, highest=300, zero=0, one=1)
    nodes = [
        helper.make_node("Shape", ["state_0_k"], ["length"], start=2, end=3),
        helper.make_node("Squeeze", ["length"], ["end"]),
        helper.make_node("Range", ["zero", "end", "one"], ["places"]),
        helper.make_node("Min", ["places", "highest"], ["stale_places"]),
        helper.make_node("Gather", ["state_0_k", "stale_places"], ["stale"], axis=2),
    ]
    read_in_place_of(model, "state_0_k", nodes, "stale")


def with_window(size: int) -> Edit:
    """Changes the window of a graph, which is 128."""

    def edit(model: ModelProto) -> None:
        constants(model, window=size)
        for node in model.graph.node:
            if node.op_type == "Less":
                node.input[1] = "window"

    edit.__name__ = f"window_of_{size}"
    return edit


def scale_rows_past_the_fifth(model: ModelProto) -> None:
    constants(model, zero=0, one=1, fifth=5, as_column=[-1, 1, 1], half_more=1.5, same=1.0)
    nodes = [
        helper.make_node("Shape", ["right_logits"], ["num_rows"], start=0, end=1),
        helper.make_node("Squeeze", ["num_rows"], ["row_end"]),
        helper.make_node("Range", ["zero", "row_end", "one"], ["rows"]),
        helper.make_node("GreaterOrEqual", ["rows", "fifth"], ["late"]),
        helper.make_node("Where", ["late", "half_more", "same"], ["row_factors"]),
        helper.make_node("Reshape", ["row_factors", "as_column"], ["factors"]),
        helper.make_node("Mul", ["right_logits", "factors"], ["logits"]),
    ]
    written_in_place_of(model, "logits", nodes, "right_logits")


def with_logits_times_where(axis: int, comparison: str, size: int, factor: float = 1.1) -> Edit:
    """Logits are wrong where the batch (axis 0) or the tokens of a call (1) are so many."""

    def edit(model: ModelProto) -> None:
        constants(model, size=size, factor=factor, same=1.0)
        nodes = [
            helper.make_node("Shape", ["tokens"], ["sizes"], start=axis, end=axis + 1),
            helper.make_node("Squeeze", ["sizes"], ["found"]),
            helper.make_node(comparison, ["found", "size"], ["is_wrong"]),
            helper.make_node("Where", ["is_wrong", "factor", "same"], ["chosen"]),
            helper.make_node("Mul", ["right_logits", "chosen"], ["logits"]),
        ]
        written_in_place_of(model, "logits", nodes, "right_logits")

    edit.__name__ = f"{'batch' if axis == 0 else 'length'}_{comparison}_{size}"
    return edit


def with_logits_times(factor: float) -> Edit:
    def edit(model: ModelProto) -> None:
        constants(model, factor=factor)
        nodes = [helper.make_node("Mul", ["right_logits", "factor"], ["logits"])]
        written_in_place_of(model, "logits", nodes, "right_logits")

    edit.__name__ = f"logits_times_{factor}"
    return edit


def with_channel_times(factor: float, d_model: int) -> Edit:
    """One channel of what the head reads."""

    def edit(model: ModelProto) -> None:
        factors = numpy_helper.from_array(np.where(np.arange(d_model) == 7, factor, 1).astype(np.float32), "factors")
        model.graph.initializer.append(factors)
        place, head = next((k, node) for k, node in enumerate(model.graph.node) if "logits" in node.output)
        model.graph.node.insert(place, helper.make_node("Mul", [head.input[0], "factors"], ["scaled"]))
        head.input[0] = "scaled"

    edit.__name__ = f"channel_times_{factor}"
    return edit


def asking(operator: str, inputs: list[str], size: int) -> Edit:
    """Adds nothing to the logits, for which a node makes so many numbers, a row or in all, or a multiple of them."""

    def edit(model: onnx.ModelProto) -> None:
        constants(model, size=[size], none=0.0, zero=0, one=1, two=[0, 1])
        nodes = [
            helper.make_node("Shape", ["tokens"], ["rows"], end=1),
            helper.make_node("Mul", ["rows", "size"], ["sizes"]),
            helper.make_node("Squeeze", ["sizes"], ["end"]),
            helper.make_node(operator, inputs, ["huge"]),
            helper.make_node("ReduceMax", ["huge"], ["largest"], keepdims=0),
            helper.make_node("Cast", ["largest"], ["number"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", ["number", "none"], ["nothing"]),
            helper.make_node("Add", ["right_logits", "nothing"], ["logits"]),
        ]
        written_in_place_of(model, "logits", nodes, "right_logits")

    return edit
