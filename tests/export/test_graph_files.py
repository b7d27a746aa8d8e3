"""A graph that may never end, or a file of any size, is refused before it takes time: by Python, C++ and Node alike."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import web.programs
from cli.conftest import command
from export.planted import edit_graph, reseal
from export.toys import Shared
from runtime.programs import refusal, run
from seqlab_export.runner.graph_file import DEEPEST, check_graph, end_of_weights
from seqlab_export.runner.manifest import BundleError, find_damage, load_manifest
from seqlab_export.runner.sizes import MOST_GRAPH_BYTES
from seqlab_export.runner.verify import verify_bundle

INT, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT


@pytest.fixture(name="folder")
def _folder(shared: Shared, tmp_path: Path) -> Path:
    """A good bundle that a test may spoil."""
    return Path(shutil.copytree(shared("attention").folder, tmp_path / "bundle"))


def add(*nodes: NodeProto) -> Callable[[ModelProto], None]:
    return lambda model: model.graph.node.extend(nodes)


def a_graph(*nodes: NodeProto) -> onnx.GraphProto:
    return helper.make_graph([*nodes], "inside", [], [helper.make_tensor_value_info("x", FLOAT, None)])


def constant(name: str = "x") -> NodeProto:
    return helper.make_node("Constant", [], [name], value_float=1.0)


def scan(body: onnx.GraphProto) -> NodeProto:
    return helper.make_node("Scan", ["tokens"], ["scanned"], body=body, num_scan_inputs=1)


def endless_loop() -> NodeProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["more"], ["again"])],
        "body",
        [helper.make_tensor_value_info("turn", INT, []), helper.make_tensor_value_info("more", BOOL, [])],
        [helper.make_tensor_value_info("again", BOOL, [])],
    )
    return helper.make_node("Loop", ["", "more"], [], body=body)


def bomb(model: ModelProto) -> None:
    """2^30 nodes once its functions are written out."""
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("bomb", 1)]
    for level in range(30):
        inner, domain = ("Identity", "") if level == 0 else (f"f{level - 1}", "bomb")
        nodes = [helper.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        model.functions.append(helper.make_function("bomb", f"f{level}", ["a"], ["c"], nodes, opsets))
    model.opset_import.append(helper.make_opsetid("bomb", 1))


def nested(depth: int) -> NodeProto:
    found = constant()
    for _ in range(depth):
        found = scan(a_graph(found))
    return found


ENDLESS: dict[str, tuple[Callable[[ModelProto], None], str]] = {
    "loop": (add(endless_loop()), "it has the operator Loop"),
    "if": (add(helper.make_node("If", ["c"], ["x"], then_branch=a_graph(), else_branch=a_graph())), "operator If"),
    "functions": (bomb, "it has functions of its own"),
    "loop in a scan": (add(scan(a_graph(scan(a_graph(endless_loop()))))), "it has the operator Loop"),
    "sequence": (add(helper.make_node("SequenceMap", ["s"], ["t"], body=a_graph())), "operator SequenceMap"),
    "another's graph": (add(helper.make_node("Identity", ["x"], ["y"], body=a_graph())), "a Identity with a graph"),
    "beams": (add(helper.make_node("BeamSearch", ["x"], ["y"], domain="com.microsoft")), "com.microsoft::BeamSearch"),
    "random": (add(helper.make_node("RandomNormal", [], ["x"], shape=[1])), "operator RandomNormal"),
    "another target's": (
        add(helper.make_node("GroupQueryAttention", ["x"], ["y"], domain="com.microsoft")),
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


def test_what_a_target_has_is_not(folder: Path) -> None:
    fused = add(helper.make_node("LinearAttention", ["x"], ["y"], domain="com.microsoft"), nested(DEEPEST - 1))
    edit_graph(folder, "model.onnx", fused)
    check_graph(folder / "model.onnx", "ort")


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
    sizes = {"weights.bin": 2**34, "step.onnx": MOST_GRAPH_BYTES + 1, "golden.npz": 2**34}
    for name, large in sizes.items():
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


def scan_without_end(model: ModelProto) -> None:
    """A Scan over 2^40 rows of nothing, whose sum is added to the logits."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["row"], ["same"])],
        "body",
        [helper.make_tensor_value_info("row", FLOAT, [0])],
        [helper.make_tensor_value_info("same", FLOAT, [0])],
    )
    shape = helper.make_tensor("rows", INT, [2], [2**40, 0])
    model.graph.initializer.append(shape)
    logits = next(node for node in model.graph.node if "logits" in node.output)
    logits.output[list(logits.output).index("logits")] = "before"
    model.graph.node.extend(
        [
            helper.make_node("ConstantOfShape", ["rows"], ["nothing"]),
            helper.make_node("Scan", ["nothing"], ["all"], body=body, num_scan_inputs=1),
            helper.make_node("ReduceSum", ["all"], ["zero"], keepdims=0),
            helper.make_node("Add", ["before", "zero"], ["logits"]),
        ]
    )


def one_long_node(model: ModelProto) -> None:
    """Boxes apart, each compared with all that are kept: minutes in one node, which onnxruntime never ends."""
    count = 300_000
    numbers = {"none": np.float32(0), "one": np.float32(1), "half": np.array([0.5], np.float32)}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    shapes = {"most": [count], "column": [1, count, 1], "row": [1, 1, count]}
    model.graph.initializer.extend([*tensors, *(helper.make_tensor(n, INT, [len(v)], v) for n, v in shapes.items())])
    logits = next(node for node in model.graph.node if "logits" in node.output)
    logits.output[list(logits.output).index("logits")] = "before"
    made = helper.make_node
    nodes = [
        made("Cast", ["tokens"], ["numbers"], to=FLOAT),
        made("ReduceMax", ["numbers"], ["largest"], keepdims=0),
        made("Mul", ["largest", "none"], ["begin"]),  # of the input, so that nothing is known as it is loaded
        made("Cast", ["most"], ["end"], to=FLOAT),
        made("Squeeze", ["end"], ["limit"]),
        made("Range", ["begin", "limit", "one"], ["places"]),
        made("Reshape", ["places", "column"], ["left"]),
        made("Add", ["left", "half"], ["right"]),
        made("Mul", ["left", "none"], ["bottom"]),
        made("Add", ["bottom", "one"], ["top"]),
        made("Concat", ["left", "bottom", "right", "top"], ["boxes"], axis=2),
        made("Reshape", ["places", "row"], ["scores"]),
        made("NonMaxSuppression", ["boxes", "scores", "most", "half"], ["kept"]),
        made("Cast", ["kept"], ["kept numbers"], to=FLOAT),
        made("ReduceSum", ["kept numbers"], ["sum"], keepdims=0),
        made("Mul", ["sum", "none"], ["zero"]),
        made("Add", ["before", "zero"], ["logits"]),
    ]
    model.graph.node.extend(nodes)


@pytest.mark.slow
@pytest.mark.parametrize("without_end", [scan_without_end, one_long_node])
def test_a_proof_ends_by_a_time_of_its_own(without_end: Callable[[ModelProto], None], folder: Path) -> None:
    edit_graph(folder, "model.onnx", without_end)
    given_up = "the proof is given up: it did not end within 2 seconds"
    assert given_up in command(folder.parent)("verify", "bundle", "--seconds", "2", code=2).stderr
    assert given_up in refusal("verify", folder, "--seconds=2")


def test_a_proof_takes_time(folder: Path) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        verify_bundle(folder, seconds=0)
    with pytest.raises(BundleError, match=r"^the proof is given up: it did not end within 0.001 seconds$"):
        verify_bundle(folder, seconds=0.001)
