"""A graph that may never end, or a file of any size, is refused before it takes time: by Python, C++ and Node alike."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from onnx import ModelProto, helper

import web.programs
from cli.conftest import command
from export.planted import Edit, edit_graph, nodes_of, reseal, writing
from runtime.conftest import Copy
from runtime.programs import refusal, run
from seqlab_export.runner.graph_file import DEEPEST, check_for_cuda, check_graph, end_of_weights
from seqlab_export.runner.manifest import BundleError, find_damage, load_manifest
from seqlab_export.runner.sizes import MOST_GRAPH_BYTES
from seqlab_export.runner.verify import verify_bundle

COUNT = 300_000


@pytest.fixture(name="folder")
def _folder(copy: Copy) -> Path:
    return copy("attention")


def add(text: str) -> Edit:
    return lambda model: model.graph.node.extend(nodes_of(text))


def scan(body: str) -> str:
    return f"x = Scan <num_scan_inputs = 1, body = inside () => (float[N] x) {{ {body} }}> (tokens)"


def nested(depth: int) -> str:
    return scan(nested(depth - 1)) if depth else "x = Constant <value_float = 1.0> ()"


def bomb(model: ModelProto) -> None:
    """2^30 nodes once its functions are written out."""
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("bomb", 1)]
    for level in range(30):
        inner = "Identity" if level == 0 else f"bomb.f{level - 1}"
        nodes = nodes_of(f"b = {inner} (a) c = {inner} (b)")
        model.functions.append(helper.make_function("bomb", f"f{level}", ["a"], ["c"], nodes, opsets))
    model.opset_import.append(helper.make_opsetid("bomb", 1))


LOOP = """x = Loop <body = turns (int64 turn, bool more) => (bool again) { again = Identity (more) }> ("", more)"""
EMPTY = "empty () => (float x) {}"
ENDLESS: dict[str, tuple[Edit, str]] = {
    "loop": (add(LOOP), "it has the operator Loop"),
    "if": (add(f"x = If <then_branch = {EMPTY}, else_branch = {EMPTY}> (c)"), "operator If"),
    "functions": (bomb, "it has functions of its own"),
    "loop in a scan": (add(scan(scan(LOOP))), "it has the operator Loop"),
    "sequence": (add(f"t = SequenceMap <body = {EMPTY}> (s)"), "operator SequenceMap"),
    "another's graph": (add(f"y = Identity <body = {EMPTY}> (x)"), "a Identity with a graph"),
    "beams": (add("y = com.microsoft.BeamSearch (x)"), "com.microsoft::BeamSearch"),
    "random": (add("x = RandomNormal <shape = [1]> ()"), "operator RandomNormal"),
    "another target's": (
        add("y = com.microsoft.GroupQueryAttention (x)"),
        "com.microsoft::GroupQueryAttention, which no graph of target portable has",
    ),
    "nested": (add(nested(DEEPEST)), f"it is nested deeper than {DEEPEST} graphs"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_may_never_end_is_refused(what: str, folder: Path) -> None:
    edit, said = ENDLESS[what]
    edit_graph(folder, "step.onnx", edit)
    with pytest.raises(BundleError, match=r"step\.onnx is no graph of a bundle: ") as refused:
        verify_bundle(folder)
    assert said in str(refused.value)
    sentence = str(refused.value).partition("a bundle: ")[2]
    if what in ("functions", "loop in a scan", "another target's"):
        assert sentence in refusal("verify", folder)
    if what == "loop in a scan":
        assert sentence in web.programs.refusal(folder)


def test_what_a_target_has_is_taken(folder: Path) -> None:
    edit_graph(folder, "model.onnx", add("y = com.microsoft.LinearAttention (x) " + nested(DEEPEST - 1)))
    check_graph(folder / "model.onnx", "ort")


@pytest.mark.parametrize(
    ("operator", "precision", "refused"),
    [
        ("MatMulInteger", "int8", True),
        ("MatMulInteger", "fp16", True),
        ("com.microsoft.GroupQueryAttention", "fp32", True),
        ("com.microsoft.GroupQueryAttention", "bf16", True),
        ("com.microsoft.GroupQueryAttention", "fp16", False),
        ("com.microsoft.MatMulNBits", "int4", False),
    ],
)
def test_what_cuda_leaves_to_the_cpu_is_refused_there(
    operator: str, precision: str, refused: bool, folder: Path
) -> None:
    edit_graph(folder, "step.onnx", add(scan(f"y = {operator} (x)")))
    said = (
        pytest.raises(ValueError, match=f"which CUDA does not compute in {precision}; export")
        if refused
        else nullcontext()
    )
    with said:
        check_for_cuda(folder / "step.onnx", precision)


@pytest.mark.parametrize(("depth", "refused"), [(DEEPEST - 1, False), (DEEPEST, True)])
def test_the_depth_of_graphs_is_limited_in_cpp_and_node(depth: int, refused: bool, folder: Path) -> None:
    edit_graph(folder, "step.onnx", add(nested(depth)))
    said = run("verify", folder).stderr.decode(), web.programs.run("tests/answer.ts", folder).stderr
    assert [f"nested deeper than {DEEPEST} graphs" in text for text in said] == [refused, refused]


def test_what_is_no_graph_is_told(folder: Path) -> None:
    whole = (folder / "model.onnx").read_bytes()
    for content in (b"ORTM" * 30, whole[:-1], b"\xff" * 20, b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x0b"):
        (folder / "model.onnx").write_bytes(content)
        reseal(folder)
        with pytest.raises(BundleError, match="is no graph of a bundle: it is not what protobuf writes"):
            verify_bundle(folder)
        assert "it is not what protobuf writes" in refusal("verify", folder)


def test_a_hole_is_not_hashed(folder: Path) -> None:
    manifest, weights = load_manifest(folder), folder / "weights.bin"
    size = weights.stat().st_size
    assert size == max(end_of_weights(folder / name) for name in ("model.onnx", "step.onnx"))
    for name, large in {"weights.bin": 2**34, "step.onnx": MOST_GRAPH_BYTES + 1, "golden.npz": 2**34}.items():
        before = (folder / name).stat().st_size
        os.truncate(folder / name, large)
        start = time.process_time()
        assert f" {large} bytes" in find_damage(folder, manifest)[name] or name == "golden.npz"
        assert "bytes" in run("verify", folder).stdout.decode()
        assert time.process_time() - start < 5
        os.truncate(folder / name, before)
    assert not find_damage(folder, manifest)
    os.truncate(folder / "manifest.sha256", 2**34)
    assert not find_damage(folder, manifest)
    os.truncate(weights, size + 1)
    assert find_damage(folder, manifest) == {"weights.bin": f"it has {size + 1} bytes, the graphs name {size}"}


def test_a_manifest_with_a_hole_is_not_read(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 2**34)
    with pytest.raises(BundleError, match=rf"manifest\.json has {2**34} bytes, a manifest has at most"):
        verify_bundle(folder)
    assert f"manifest.json has {2**34} bytes, a manifest has at most" in refusal("info", folder)


# A Scan over 2^40 rows of nothing, whose sum is added to the logits.
scan_without_end = writing(
    "scan_without_end",
    "logits",
    """
    nothing = ConstantOfShape (rows)
    all = Scan <num_scan_inputs = 1, body = one (float[0] row) => (float[0] same) { same = Identity (row) }> (nothing)
    zero = ReduceSum <keepdims = 0> (all) logits = Add (right, zero)
    """,
    rows=[2**40, 0],
)

# Boxes apart, each compared with all that are kept: minutes in one node, which onnxruntime never ends. They are made of
# the input, so that nothing is known as it is loaded.
one_long_node = writing(
    "one_long_node",
    "logits",
    """
    numbers = Cast <to = 1> (tokens) largest = ReduceMax <keepdims = 0> (numbers) begin = Mul (largest, none)
    end = Cast <to = 1> (most) limit = Squeeze (end) places = Range (begin, limit, unit)
    left = Reshape (places, column) bottom = Mul (left, none) beyond = Add (left, half) top = Add (bottom, unit)
    boxes = Concat <axis = 2> (left, bottom, beyond, top) scores = Reshape (places, row)
    overlap = Unsqueeze (half, first) kept = NonMaxSuppression (boxes, scores, most, overlap)
    kept_numbers = Cast <to = 1> (kept) sum = ReduceSum <keepdims = 0> (kept_numbers)
    zero = Mul (sum, none) logits = Add (right, zero)
    """,
    none=0.0,
    unit=1.0,
    half=0.5,
    first=[0],
    most=[COUNT],
    column=[1, COUNT, 1],
    row=[1, 1, COUNT],
)


@pytest.mark.slow
@pytest.mark.parametrize("without_end", [scan_without_end, one_long_node])
def test_a_proof_ends_by_a_time_of_its_own(without_end: Edit, folder: Path) -> None:
    edit_graph(folder, "model.onnx", without_end)
    given_up = "the proof is given up: it did not end within 2 seconds"
    assert given_up in command(folder.parent)("verify", "bundle", "--seconds", "2", code=2).stderr
    assert given_up in refusal("verify", folder, "--seconds=2")


def test_a_proof_takes_time(folder: Path) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        verify_bundle(folder, seconds=0)
    with pytest.raises(BundleError, match=r"^the proof is given up: it did not end within 0.001 seconds$"):
        verify_bundle(folder, seconds=0.001)
