"""Rewrites of a captured graph, which computes the same with fewer nodes or less work, and its constants."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnxscript import ir
from torch import Tensor, nn
from torch.export import Dim

from export.toys import graph, results
from seqlab.positions.constant import Angles, geometric
from seqlab_export.capture.to_onnx import quiet
from seqlab_export.passes.cache import fuse_cache_concat, slice_cache
from seqlab_export.passes.keep_time_axis import keep_time_axis
from seqlab_export.passes.share_products import join_weights, multiply_as_stored
from seqlab_export.passes.share_source_keys import SourceKeys

BODY = """
    embedded = Gather (table, token)
    with_time = Unsqueeze (embedded, one)
    placed = Add (with_time, place)
    x = Squeeze (placed, one)
    normed = LayerNormalization <axis = -1> (x, scale)
    normed_with_time = Unsqueeze (normed, one)
    mixed_with_time = CumSum (normed_with_time, axis)
    mixed = Squeeze (mixed_with_time, one)
    transposed = Transpose <perm = [1, 0]> (weight)
    projected = {product}
    residual = Add (x, projected)
    swapped = Transpose <perm = [1, 0]> (residual)
    y = Unsqueeze (residual, one)
"""
PRODUCTS = {"MatMul": "MatMul (mixed, transposed)", "Gemm": "Gemm <transB = 1> (mixed, weight)"}


def step(product: str) -> ir.Model:
    draw = np.random.default_rng(0).standard_normal
    weights = {"table": draw((9, 4)), "place": draw((1, 1, 4)), "scale": draw(4), "weight": draw((4, 4))}
    return graph(
        "int64[B, 1] tokens",
        "float[B, 1, 4] y, float[4, B] swapped",
        "token = Squeeze (tokens, one)" + BODY.format(product=PRODUCTS[product]),
        **{name: weight.astype(np.float32) for name, weight in weights.items()},
        one=np.array([1]),
        axis=np.array(1),
    )


def test_a_step_keeps_its_time_axis_where_the_last_one_counts() -> None:
    captured, kept = step("MatMul"), step("MatMul")
    keep_time_axis(kept)
    tokens = np.array([[3], [1], [8]])
    for before, after in zip(results(captured, tokens=tokens), results(kept, tokens=tokens), strict=True):
        np.testing.assert_array_equal(before, after)
    assert captured.graph.outputs[0].name == kept.graph.outputs[0].name
    counts = Counter(node.op_type for node in kept.graph)
    assert counts["Unsqueeze"] == 0
    assert counts["Squeeze"] == 1, "for the transposition, which reads a matrix"


def test_a_step_with_gemms_is_left_as_it_is() -> None:
    captured, kept = step("Gemm"), step("Gemm")
    keep_time_axis(kept)
    assert [node.op_type for node in captured.graph] == [node.op_type for node in kept.graph]


TURNED = "turned = Transpose <perm = [1, 0]> (weight)"


@pytest.mark.parametrize(
    ("body", "shape", "reshapes"),
    [
        (f"{TURNED} y = MatMul (x, turned)", "B, T, 6", 2),
        (f"{TURNED} h = MatMul (x, turned) y = Reshape (h, heads)", "B, T, 3, 2", 2),
        # Here 0 is T, which the rows have not.
        (f"{TURNED} h = MatMul (x, turned) y = Reshape (h, copied)", "U, T, 3, 2", 3),
        (f"{TURNED} a = MatMul (x, turned) b = MatMul (x, turned) y = Add (a, b)", "B, T, 6", 3),
        (
            f"{TURNED} h = Reshape (x, apart) k = Reshape (h, joined) l = MatMul (k, turned) y = Reshape (l, heads)",
            "U, 5, 3, 2",
            3,
        ),
    ],
    ids=["whole", "heads", "copied", "twice", "apart"],
)
def test_a_sequence_is_multiplied_by_the_weight_as_it_is_stored(body: str, shape: str, reshapes: int) -> None:
    draw = np.random.default_rng(0).standard_normal
    sizes = {"heads": [-1, 5, 3, 2], "copied": [-1, 0, 3, 2], "apart": [-1, 5, 2, 2], "joined": [-1, 5, 4]}
    weight = draw((6, 4)).astype(np.float32)

    def captured() -> ir.Model:
        used = {name: np.array(size) for name, size in sizes.items() if name in body}
        return graph("float[B, T, 4] x", f"float[{shape}] y", body, weight=weight, **used)

    before, after = captured(), captured()
    multiply_as_stored(after)
    x = draw((3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(results(after, x=x)[0], results(before, x=x)[0])
    counts = Counter(node.op_type for node in after.graph)
    assert (counts["MatMul"], counts["Transpose"], counts["Gemm"]) == (0, 0, body.count("MatMul"))
    assert counts["Reshape"] == reshapes and counts["Shape"] <= 1
    assert after.graph.outputs[0].name == "y"
    assert all(node.inputs[1] is after.graph.initializers["weight"] for node in after.graph if node.op_type == "Gemm")


def test_a_step_is_multiplied_without_its_time_axis() -> None:
    body = f"""
        {TURNED} whole = Unsqueeze (x, one) product = MatMul (whole, turned)
        rows = Squeeze (product, one) y = Neg (rows) z = Neg (product)
    """
    draw = np.random.default_rng(0).standard_normal
    weights = {"weight": draw((6, 4)).astype(np.float32), "one": np.array([1])}
    outputs = "float[B, 6] y, float[B, 1, 6] z"
    before, after = (graph("float[B, 4] x", outputs, body, **weights) for _ in "ab")
    multiply_as_stored(after)
    x = draw((3, 4)).astype(np.float32)
    for ours, theirs in zip(results(after, x=x), results(before, x=x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    counts = Counter(node.op_type for node in after.graph)
    assert counts == {"Gemm": 1, "Neg": 2, "Constant": 1, "Unsqueeze": 1}, "for the reader of the whole product"


def test_products_with_other_matrices_stay_as_they_are() -> None:
    """A matrix that is computed, one for each head, and one that is stored as it is multiplied."""
    body = f"""
        {TURNED} a = MatMul (x, matrix) flipped = Transpose <perm = [1, 0]> (matrix) b = MatMul (x, flipped)
        c = MatMul (x, each) d = MatMul (rows, turned) e = MatMul (x, plain)
        all = Transpose <perm = [0, 2, 1]> (each) f = MatMul (x, all)
    """
    draw = np.random.default_rng(0).standard_normal
    shapes = {"weight": (4, 4), "each": (3, 4, 4), "plain": (4, 4)}
    weights = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = "float[3, T, 4] x, float[4, 4] matrix, float[B, 4] rows"
    outputs = ", ".join(f"float[3, T, 4] {name}" for name in "abcef") + ", float[B, 4] d"
    kept = graph(inputs, outputs, body, **weights)
    multiply_as_stored(kept)
    assert [node.op_type for node in kept.graph].count("MatMul") == 6


def test_weights_that_are_read_as_one_are_stored_as_one() -> None:
    """Each pair once, whoever reads it; what is no weight, or has another axis, is not joined."""
    body = """
        k_v = Concat <axis = 0> (k, v) again = Concat <axis = 0> (k, v) v_k = Concat <axis = 0> (v, k)
        beside = Concat <axis = 1> (k, v) given = Concat <axis = 0> (k, x)
        y = Sum (k_v, again, v_k, given) z = Neg (beside) w = Neg (q)
    """
    draw = np.random.default_rng(0).standard_normal
    weights = {name: draw((3, 2)).astype(np.float32) for name in "qkv"}
    outputs = "float[6, 2] y, float[3, 4] z, float[3, 2] w"
    before, after = (graph("float[3, 2] x", outputs, body, **weights) for _ in "ab")
    join_weights(after)
    x = draw((3, 2)).astype(np.float32)
    for ours, theirs in zip(results(after, x=x), results(before, x=x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert after.graph.initializers.keys() == {"q", "k", "v", "k+v", "v+k"}
    assert [node.op_type for node in after.graph].count("Concat") == 2


@pytest.mark.parametrize("taken", [[0, 0], [3, 1], [8, 8]], ids=["none", "some", "all"])
def test_attention_reads_what_is_written_of_a_cache(taken: list[int]) -> None:
    """Rows of no key read the first place: they are pads, which attend to themselves."""

    def cached() -> ir.Model:
        return graph(
            "float[B, 2, T, 4] q, float[B, 2, T, 4] new, float[B, 2, 8, 4] k, float[B, 2, 8, 4] v, "
            "int64[B, 2, T, 4] place, bool[B, 1, T, 8] mask, int64[B] position",
            "float[B, 2, T, 4] y, float[B, 2, 8, 4] new_state_k, float[B, 2, 8, 4] new_state_v, "
            "int64[B] new_state_position",
            """
            new_state_k = ScatterElements <axis = 2> (k, place, new)
            new_state_v = ScatterElements <axis = 2> (v, place, new)
            new_state_position = Identity (position)
            y = Attention (q, new_state_k, new_state_v, mask)
            """,
        )

    draw = np.random.default_rng(0).standard_normal
    inputs: dict[str, Any] = {name: draw((2, 2, 1, 4)).astype(np.float32) for name in ("q", "new")}
    inputs |= {name: draw((2, 2, 8, 4)).astype(np.float32) for name in ("k", "v")}
    inputs["place"] = np.zeros((2, 2, 1, 4), dtype=np.int64)
    inputs["position"] = np.array(taken)
    inputs["mask"] = np.arange(8) < np.maximum(inputs["position"], 1)[:, None, None, None]
    whole, written = cached(), cached()
    slice_cache(written)
    for before, after in zip(results(whole, **inputs), results(written, **inputs), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-6)
    assert [node.op_type for node in written.graph].count("Slice") == 3


@pytest.mark.parametrize(
    ("join", "appends"),
    [
        ("Concat <axis = -2> (past, new)", True),
        ("Concat <axis = -2> (past, new, new)", False),
        ("Concat <axis = -1> (past, new)", False),
        ("Concat <axis = -2> (new, past)", False),
        ("Add (past, given)", False),
    ],
)
def test_attention_appends_to_a_cache_that_one_join_makes_longer(join: str, appends: bool) -> None:
    fused = graph(
        "float[B, 2, 1, K] query, float[B, 2, 1, 4] given, float[B, 2, P, 4] past, bool[B, 1, 1, S] mask",
        "float[B, 2, 1, K] y, float[B, 2, S, K] new_keys, float[B, 2, S, K] new_values",
        f"""
        new = Neg (given)
        new_keys = {join}
        new_values = {join}
        y = Attention (query, new_keys, new_values, mask)
        """,
    )
    before = [node.op_type for node in fused.graph]
    fuse_cache_concat(fused)
    assert [node.op_type for node in fused.graph] == (["Neg", "Attention"] if appends else before)


@pytest.mark.parametrize("read", [{"keys", "values", "mask"}, {"keys", "mask"}, set()], ids=len)
def test_beams_read_one_row_of_what_was_read_of_a_source(read: set[str]) -> None:
    """Two beams of each of three sources give what each gives with a row of its own."""
    weights: dict[str, Any] = {"axes": np.array([1, 2]), "shape": np.ones(4, dtype=np.int64)}
    shared, whole = (
        graph(
            "int64[B, 1] tokens, float[B, 2, 1, 4] query, float[N, 2, 5, 4] keys, float[N, 2, 5, 4] values, "
            "bool[N, 5] mask",
            "float[B, 2, 1, 4] y",
            """
            unsqueezed = Unsqueeze (mask, axes)
            every = Expand (unsqueezed, shape)
            y = Attention (query, keys, values, every)
            """,
            **weights,
        )
        for _ in range(2)
    )
    keys = SourceKeys(read)
    keys.share(shared)
    assert keys.shared == (read if len(read) == 3 else set())
    draw, rows = np.random.default_rng(0).standard_normal, 6 if len(read) == 3 else 3
    inputs: dict[str, Any] = {"query": draw((rows, 2, 1, 4)).astype(np.float32)}
    inputs |= {name: draw((3, 2, 5, 4)).astype(np.float32) for name in ("keys", "values")}
    inputs["mask"] = np.arange(5) < np.array([[5], [2], [3]])
    each: dict[str, Any] = {
        name: array if name == "query" else np.repeat(array, rows // 3, axis=0) for name, array in inputs.items()
    }
    inputs["tokens"] = each["tokens"] = np.zeros((rows, 1), dtype=np.int64)
    np.testing.assert_allclose(results(shared, **inputs)[0], results(whole, **each)[0], rtol=1e-6, atol=1e-6)


class Rotation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.angles = Angles(geometric(10000.0, 8))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = self.angles(positions, torch.float32)
        return angle.cos(), angle.sin()


def test_angles_stay_exact_far_out(tmp_path: Path) -> None:
    program = torch.export.export(Rotation(), (torch.zeros(1, 7, dtype=torch.int64),), dynamic_shapes=({1: Dim("T")},))
    with quiet():
        torch.onnx.export(program, opset_version=23, verbose=False).save(tmp_path / "angles.onnx")
    session = ort.InferenceSession(tmp_path / "angles.onnx", providers=["CPUExecutionProvider"])
    positions = np.arange(0, 100_000, 37)[None]
    exact = positions[..., None] * 10000.0 ** (-2.0 * np.arange(4) / 8)
    outputs = session.run(None, {"positions": positions})
    for found, expected in zip(outputs, (np.cos(exact), np.sin(exact)), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
