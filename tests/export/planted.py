"""Defects planted in copies of good bundles, with hashes made right again, and what both runtimes say of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def copy_of(bundle: Path, folder: Path) -> Path:
    """A copy that a test may spoil, in `folder`."""
    return Path(shutil.copytree(bundle, folder / "bundle"))


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


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def start_elsewhere(folder: Path) -> None:
    """Begins from another hidden state than the model."""
    manifest = load_manifest(folder)
    position, hidden, *others = manifest.state
    replace(manifest, state=(position, replace(hidden, initial=0.5), *others)).save(folder)


def prove_less(folder: Path) -> None:
    """Takes one length from the golden file."""
    with np.load(folder / "golden.npz") as file:
        arrays: dict[str, Any] = {name: file[name] for name in file if not name.startswith("length 17/")}
        assert len(arrays) < len(file.files)
    np.savez(folder / "golden.npz", allow_pickle=False, **arrays)
    reseal(folder)


def round_weights(folder: Path) -> None:
    weights = np.fromfile(folder / "weights.bin", dtype=np.float32)
    weights.astype(np.float16).astype(np.float32).tofile(folder / "weights.bin")
    reseal(folder)


def with_golden(*names: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Changes arrays of the golden file."""

    def spoil(folder: Path) -> None:
        with np.load(folder / "golden.npz") as file:
            arrays = dict(file)
        np.savez(folder / "golden.npz", allow_pickle=False, **arrays | {name: change(arrays[name]) for name in names})
        reseal(folder)

    return spoil


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


HOSTILE = {
    **{
        f"tokenizer {name}": with_tokenizer(**{"class": name}) for name in ("os.system", "evil.Evil", "StoredTokenizer")
    },
    "tokenizer's files": with_tokenizer(assets={"../../evil.py": "0" * 64}),
    **{f"tokenizer in {place}": with_statement(tokenizer=place) for place in ("../evil", "/etc", "evil.py")},
    **{f"weights at {place}": with_weights_at(place) for place in ("../../evil.pt", "/etc/hostname")},
    "a node of another library": lambda folder: edit_graph(
        folder, "model.onnx", lambda model: setattr(model.graph.node[0], "domain", "com.evil")
    ),
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
        HOSTILE[what](copy := copy_of(bundle, folder / "hostile"))
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


def nodes_of(text: str, **constants: Any) -> list[NodeProto]:
    """Nodes in ONNX's own notation, after one for each constant, an int, a float or a list of ints."""
    kinds: dict[type, str] = {int: "value_int", float: "value_float", list: "value_ints"}
    given: dict[str, dict[str, Any]] = {name: {kinds[type(value)]: value} for name, value in constants.items()}
    made = [helper.make_node("Constant", [], [name], **options) for name, options in given.items()]
    return [*made, *onnx.parser.parse_graph(f"planted () => () {{ {text} }}").node]


def reading(title: str, value: str, text: str, **constants: Any) -> Edit:
    """An edit after which whatever reads `value` reads what the last of these nodes gives."""

    def edit(model: ModelProto) -> None:
        nodes = nodes_of(text, **constants)
        for node in model.graph.node:
            node.input[:] = [nodes[-1].output[0] if name == value else name for name in node.input]
        for node in reversed(nodes):
            model.graph.node.insert(0, node)

    edit.__name__ = title
    return edit


def writing(title: str, value: str, text: str, **constants: Any) -> Edit:
    """An edit after which the output `value` is what these nodes make of what it was, `right`."""

    def edit(model: ModelProto) -> None:
        rename(model, {value: "right"})
        model.graph.node.extend(nodes_of(text, **constants))

    edit.__name__ = title
    return edit


def rename(model: ModelProto, names: dict[str, str]) -> None:
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]


def pads_as_real(mask: str) -> Edit:
    return reading(f"no_pads_in_{mask}", mask, f"pads = Not ({mask}) all_real = Or ({mask}, pads)")


shift_positions_from_64 = reading(
    "positions_from_64_shifted",
    "state_position",
    "late = GreaterOrEqual (state_position, first) shift = Cast <to = 7> (late) shifted = Add (state_position, shift)",
    first=64,
)

clamp_positions_at_300 = reading("positions_at_most_300", "state_position", "low = Min (state_position, top)", top=300)

stale_cache_past_300 = reading(
    "keys_past_300_stale",
    "state_0_k",
    """
    length = Shape <start = 2, end = 3> (state_0_k) end = Squeeze (length)
    places = Range (zero, end, one) known = Min (places, top) stale = Gather <axis = 2> (state_0_k, known)
    """,
    top=300,
    zero=0,
    one=1,
)

scale_rows_past_the_fifth = writing(
    "rows_past_the_fifth",
    "logits",
    """
    num_rows = Shape <start = 0, end = 1> (right) row_end = Squeeze (num_rows) rows = Range (zero, row_end, one)
    late = GreaterOrEqual (rows, fifth) factors = Where (late, half_more, same)
    column = Reshape (factors, shape) logits = Mul (right, column)
    """,
    zero=0,
    one=1,
    fifth=5,
    shape=[-1, 1, 1],
    half_more=1.5,
    same=1.0,
)


def with_window(size: int) -> Edit:
    """Changes the window of a graph, which is 128."""

    def edit(model: ModelProto) -> None:
        model.graph.node.insert(0, nodes_of("", window=size)[0])
        for node in model.graph.node:
            if node.op_type == "Less":
                node.input[1] = "window"

    edit.__name__ = f"window_of_{size}"
    return edit


def with_logits_times_where(axis: int, comparison: str, size: int, factor: float = 1.1) -> Edit:
    """Logits are wrong where the batch (axis 0) or the tokens of a call (1) are so many."""
    return writing(
        f"{'batch' if axis == 0 else 'length'}_{comparison}_{size}",
        "logits",
        f"""
        sizes = Shape <start = {axis}, end = {axis + 1}> (tokens) found = Squeeze (sizes)
        is_wrong = {comparison} (found, size) chosen = Where (is_wrong, factor, same) logits = Mul (right, chosen)
        """,
        size=size,
        factor=factor,
        same=1.0,
    )


def with_output_times(factor: float, output: str = "logits") -> Edit:
    return writing(f"{output}_times_{factor}", output, f'"{output}" = Mul (right, factor)', factor=factor)


def with_channel_times(factor: float, d_model: int) -> Edit:
    """One channel of what the head reads."""

    def edit(model: ModelProto) -> None:
        factors = numpy_helper.from_array(np.where(np.arange(d_model) == 7, factor, 1).astype(np.float32), "factors")
        model.graph.initializer.append(factors)
        products = [place for place, node in enumerate(model.graph.node) if node.op_type in ("MatMul", "Gemm")]
        place, head = products[-1], model.graph.node[products[-1]]
        model.graph.node.insert(place, helper.make_node("Mul", [head.input[0], "factors"], ["scaled"]))
        head.input[0] = "scaled"

    edit.__name__ = f"channel_times_{factor}"
    return edit


def asking(operator: str, inputs: list[str], size: int) -> Edit:
    """Adds nothing to the logits, for which a node makes so many numbers, a row or in all, or a multiple of them."""
    text = f"""
        rows = Shape <end = 1> (tokens) sizes = Mul (rows, size) end = Squeeze (sizes)
        huge = {operator} ({", ".join(inputs)}) largest = ReduceMax <keepdims = 0> (huge)
        number = Cast <to = 1> (largest) nothing = Mul (number, none) logits = Add (right, nothing)
    """
    return writing(f"asking_{operator}", "logits", text, size=[size], none=0.0, zero=0, one=1, two=[0, 1])
