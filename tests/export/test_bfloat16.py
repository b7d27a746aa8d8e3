"""Weights stored as bfloat16: half the bytes, each once, and not one bit of an output is another."""

from __future__ import annotations

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
from export.toys import TOKENIZER, graph, results, toy
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.graphs import export_graphs
from seqlab_export.passes.quantize import store_as_bfloat16

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def in_bfloat16(array: NDArray[np.float32]) -> NDArray[np.float32]:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_only_what_bfloat16_holds_is_stored_in_it_and_outputs_stay_as_they_are() -> None:
    """A weight that several nodes read, one of them in a graph inside, has one Cast."""
    body = """
        x = Gather (table, tokens) turned = Transpose (table)
        h = If (c) <
            then_branch = g1 () => (float[B, 16] h1) { h1 = MatMul (x, turned) },
            else_branch = g2 () => (float[B, 16] h2) { h2 = MatMul (x, table) }
        >
        y = Add (h, small) z = MatMul (x, odd)
    """
    draw = np.random.default_rng(0)
    odd = draw.standard_normal((16, 16), dtype=np.float32)
    weights = {"table": in_bfloat16(odd), "odd": odd, "small": in_bfloat16(odd[0])}
    plain, stored = (graph("int64[B] tokens, bool c", "float[B, 16] y, float[B, 16] z", body, **weights) for _ in "ab")
    store_as_bfloat16(stored)
    proto = ir.to_proto(stored)
    onnx.checker.check_model(proto, full_check=True)
    kinds = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    assert kinds == {"table": TensorProto.BFLOAT16, "odd": TensorProto.FLOAT, "small": TensorProto.FLOAT}
    assert [node.op_type for node in proto.graph.node].count("Cast") == 1
    feed: dict[str, Any] = {"tokens": draw.integers(16, size=5), "c": np.array(True)}
    for ours, theirs in zip(results(stored, **feed), results(plain, **feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("mixer", "positions"), [(Attention, RoPE), (GRU, NoPositions)])
def test_the_file_has_half_the_bytes_and_what_is_computed_is_the_rounded_model(
    mixer: Any, positions: Any, tmp_path: Path
) -> None:
    """The table is the output layer too; it is stored once."""
    model = DecoderLM(300, 32, d_model=64, num_layers=1, mixer=mixer, positions=positions)
    model = in_dtype(randomized(model).float().eval(), "bf16")
    stored: dict[str, Precision] = {"bf16": "bf16", "rounded": "fp32"}
    for name, precision in stored.items():
        (tmp_path / name).mkdir()
        export_graphs(model, tmp_path / name, precision)
    size, full = ((tmp_path / name / "weights.bin").stat().st_size for name in stored)
    assert 0.49 * full < size < 0.51 * full
    tensors = onnx.load(tmp_path / "bf16" / "step.onnx").graph.initializer
    weights = {tensor.name.removeprefix("model."): numpy_helper.to_array(tensor) for tensor in tensors}
    held, parameters = {n for n, a in weights.items() if a.dtype == ml_dtypes.bfloat16}, dict(model.named_parameters())
    assert {name for name, parameter in parameters.items() if parameter.numel() >= 256} <= held
    for name in held & parameters.keys():
        np.testing.assert_array_equal(weights[name], parameters[name].detach().float().numpy())
    feed: dict[str, Any] = {"tokens": np.random.default_rng(0).integers(300, size=(3, 7))}
    feed |= {"pad_mask": np.ones((3, 7), dtype=np.bool_)}
    feed |= {f"state_{name}": entry.float().numpy() for name, entry in model.init_state(3).items()}
    feed |= {name: feed[name].astype(np.int64) for name in feed if name.endswith("position")}
    feed |= {name: feed[name].astype(np.bool_) for name in feed if name.endswith("mask")}
    sessions = [ort.InferenceSession(tmp_path / name / "model.onnx") for name in stored]
    found, expected = (session.run(["logits"], feed)[0] for session in sessions)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_step_for_cuda_graphs_is_proven(tmp_path: Path) -> None:
    model = toy(partial(Attention, num_heads=2), RoPE, 1)
    options: dict[str, Any] = {"precision": "bf16", "target": "cuda-graph"}
    assert export_bundle(model, TOKENIZER, tmp_path / "bundle", seq_len=24, **options).ok


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_translator_is_proven(kind: str, tmp_path: Path) -> None:
    assert exported(randomized(WRITING[kind]()).float().eval(), tmp_path / "bundle", precision="bf16").ok
