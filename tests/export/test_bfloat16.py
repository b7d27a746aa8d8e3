"""Weights stored as bfloat16: half the bytes, each once, and not one bit of an output is another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnxscript import ir

from contracts.subjects import randomized
from export.test_encoder_bundles import WRITING, exported
from export.toys import TOKENIZER, toy
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.graphs import export_graphs
from seqlab_export.passes.quantize import store_as_bfloat16

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

GRAPH = """
<ir_version: 10, opset_import: ["" : 23]>
agraph (int64[B] tokens, bool c) => (float[B, 16] y, float[B, 16] z) {
    x = Gather (table, tokens)
    turned = Transpose (table)
    h = If (c) <
        then_branch = g1 () => (float[B, 16] h1) { h1 = MatMul (x, turned) },
        else_branch = g2 () => (float[B, 16] h2) { h2 = MatMul (x, table) }
    >
    y = Add (h, small)
    z = MatMul (x, odd)
}
"""


def in_bfloat16(array: NDArray[np.float32]) -> NDArray[np.float32]:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_only_what_bfloat16_holds_is_stored_in_it_and_outputs_stay_as_they_are() -> None:
    """A weight that several nodes read, one of them in a graph inside, has one Cast."""
    draw = np.random.default_rng(0)
    odd = draw.standard_normal((16, 16), dtype=np.float32)
    given = {"table": in_bfloat16(odd), "odd": odd, "small": in_bfloat16(odd[0])}
    proto = onnx.parser.parse_model(GRAPH)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in given.items())
    graph = ir.from_proto(proto)
    store_as_bfloat16(graph)
    stored = ir.to_proto(graph)
    onnx.checker.check_model(stored, full_check=True)
    kinds = {tensor.name: tensor.data_type for tensor in stored.graph.initializer}
    assert kinds == {"table": TensorProto.BFLOAT16, "odd": TensorProto.FLOAT, "small": TensorProto.FLOAT}
    assert [node.op_type for node in stored.graph.node].count("Cast") == 1
    feed = {"tokens": draw.integers(16, size=5), "c": np.array(True)}
    found, expected = (ort.InferenceSession(some.SerializeToString()).run(None, feed) for some in (stored, proto))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def weights_of(folder: Path) -> dict[str, NDArray[Any]]:
    graph = onnx.load(folder / "step.onnx").graph
    return {tensor.name.removeprefix("model."): numpy_helper.to_array(tensor) for tensor in graph.initializer}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mixer", "positions"), [(Attention, RoPE), pytest.param(GRU, NoPositions, marks=pytest.mark.slow)]
)
def test_the_file_has_half_the_bytes_and_what_is_computed_is_the_rounded_model(
    mixer: Any, positions: Any, tmp_path: Path
) -> None:
    """The table is the output layer too; it is stored once."""
    model = DecoderLM(300, 32, d_model=64, num_layers=1, mixer=mixer, positions=positions)
    model = randomized(model).float().eval()
    stored: dict[str, Precision] = {"bf16": "bf16", "rounded": "fp32"}
    for name, stored_in in stored.items():
        (tmp_path / name).mkdir()
        export_graphs(in_dtype(model, "bf16"), tmp_path / name, stored_in)
    size, full = ((tmp_path / name / "weights.bin").stat().st_size for name in ("bf16", "rounded"))
    assert 0.49 * full < size < 0.51 * full
    weights, parameters = weights_of(tmp_path / "bf16"), dict(model.named_parameters())
    held = {name: array for name, array in weights.items() if array.dtype == ml_dtypes.bfloat16}
    assert {name for name, parameter in parameters.items() if parameter.numel() >= 256} <= {*held}
    for name in held.keys() & parameters.keys():
        expected = parameters[name].detach().numpy().astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(held[name], expected)
    tokens = np.random.default_rng(0).integers(300, size=(3, 7))
    found, expected = (logits(tmp_path / name / "model.onnx", tokens) for name in ("bf16", "rounded"))
    np.testing.assert_array_equal(found, expected)


def logits(path: Path, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    session = ort.InferenceSession(path)
    feed: dict[str, Any] = {"tokens": tokens, "pad_mask": np.ones(tokens.shape, dtype=np.bool_)}
    for given in session.get_inputs()[2:]:
        shape = [{"B": len(tokens), "S": 0}.get(dim, dim) for dim in given.shape]
        feed[given.name] = np.zeros(shape, dtype=np.bool_ if given.type == "tensor(bool)" else np.float32)
        if given.name == "state_position":
            feed[given.name] = np.zeros(shape, dtype=np.int64)
    found: NDArray[np.float32] = session.run(["logits"], feed)[0]
    return found


def _fixed(folder: Path) -> Any:
    model = toy(partial(Attention, num_heads=2), RoPE)
    return export_bundle(
        model, TOKENIZER, folder, run_id="", commit="", seq_len=24, precision="bf16", target="cuda-graph"
    )


def _translator(kind: str, folder: Path) -> Any:
    return exported(randomized(WRITING[kind]()).float().eval(), folder, precision="bf16")


@pytest.mark.slow
@pytest.mark.parametrize(
    "export",
    [_fixed, partial(_translator, "transformer"), partial(_translator, "additive"), partial(_translator, "rnn")],
    ids=["a step for cuda graphs", "transformer", "additive", "rnn"],
)
def test_every_kind_of_model_and_target_is_proven(export: Callable[[Path], Any], tmp_path: Path) -> None:
    assert export(tmp_path / "bundle").ok
