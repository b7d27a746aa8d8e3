"""Bundles in fp16, bf16, int8 and int4: the arithmetic that their errors are judged by is the runtime's, and the proof
of them can fail. Of weights stored as bfloat16, half the bytes, not one bit of an output is another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxscript import ir

from contracts.subjects import randomized
from export.planted import reseal
from export.test_encoder_bundles import WRITING, exported
from export.toys import TOKENIZER, graph, results, toy
from seqlab.attention import Attention
from seqlab.models import BagOfWords, DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab_export.bundle import export_bundle
from seqlab_export.capture.plan import plan_export
from seqlab_export.capture.precision import Precision, in_dtype
from seqlab_export.graphs import export_graphs
from seqlab_export.passes import quantize as passes
from seqlab_export.passes.int8_products import multiply_as_int8
from seqlab_export.passes.quantize import Quantized, quantize, split_gemms, store_as_bfloat16
from seqlab_export.proof.fake_quantized import FakeQuantized, int4_blocks, int7_rows, int8_rows
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.runner.verify import verify_bundle


def linear(weight: torch.Tensor, precision: Quantized, op_type: str = "MatMul") -> ir.Model:
    """x (B, D) times the weight (O, D), quantised, as the exporter writes it: a MatMul, or a Gemm with the weight
    transposed."""
    stored = (weight if op_type == "Gemm" else weight.T).contiguous()
    body = f"y = {'Gemm <transB = 1>' if op_type == 'Gemm' else 'MatMul'} (x, w)"
    model = graph(f"float[B, {weight.shape[1]}] x", f"float[B, {weight.shape[0]}] y", body, w=stored.numpy())
    split_gemms(model)
    quantized = quantize(model, precision)
    floats = [value for value in quantized.graph.initializers.values() if value.dtype == ir.DataType.FLOAT]
    assert not any(str(value.name).startswith("w") and value.shape == stored.shape for value in floats)
    return quantized


def run(model: ir.Model, x: torch.Tensor, optimized: Path | None = None) -> Any:
    return results(model, optimized, x=x.numpy())[0]


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_fake_quantised_linear_layers_are_the_runtimes(precision: Quantized, op_type: str) -> None:
    """int4's inputs are rounded to 8 bits by the runtime alone: here they are ones that this does not change."""
    weight, x = torch.randn(24, 70) * torch.rand(24, 1), torch.randn(9, 70) if precision == "int8" else torch.eye(70)
    weight[3] = 0
    found = run(linear(weight, precision, op_type), x)
    with FakeQuantized(precision):
        own = F.linear(x, weight)
    np.testing.assert_allclose(found, own, atol=1e-5, rtol=1e-5)
    assert (own - x @ weight.T).square().mean().sqrt() > 5e-3


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_product_with_a_matrix_for_each_head_stays_as_it_is(precision: Quantized, heads: int) -> None:
    """It is neither a linear layer nor an LSTM, whose weights have three dimensions too."""
    weight, x = torch.randn(heads, 8, 32), torch.randn(heads, 5, 8)
    product = graph(f"float[{heads}, B, 8] x", f"float[{heads}, B, 32] y", "y = MatMul (x, w)", w=weight.numpy())
    np.testing.assert_allclose(run(quantize(product, precision), x), x @ weight, atol=1e-5)


def test_a_wrong_quantising_is_found_at_export(monkeypatch: pytest.MonkeyPatch) -> None:
    original = passes._int4

    def spoil(model: Any, kept: list[str]) -> Any:
        found = original(model, kept)
        for tensor in found.graph.initializer:
            if tensor.name == "w_scales":
                scale = numpy_helper.to_array(tensor).copy()
                scale.flat[3] *= 1.0001
                tensor.CopyFrom(numpy_helper.from_array(scale, tensor.name))
        return found

    monkeypatch.setattr(passes, "_int4", spoil)
    with pytest.raises(ValueError, match="quantising of w gave other scales or weights"):
        linear(torch.randn(11, 40), "int4")


@pytest.mark.parametrize("rows", [64, 127])
def test_a_table_in_bf16_may_be_too_small_for_the_file_of_weights(rows: int, tmp_path: Path) -> None:
    """From 256 numbers on a table has 1,024 bytes in fp32; below 512 it has fewer in bf16, and stands in its graph."""
    model = BagOfWords(TOKENIZER.vocab_size, 3, 32, d_model=4).eval()
    model.embedding = torch.nn.Embedding(rows, 4)
    export_graphs(plan_export(model, None, seq_len=32, precision="bf16"), tmp_path)


def test_int4_weights_are_multiplied_as_int8(tmp_path: Path) -> None:
    """The added error is a small part of int4's, and onnxruntime computes the weights once, when it loads them."""
    weight, x = torch.randn(24, 70) * torch.rand(24, 1), torch.randn(9, 70)
    weight[3] = 0
    model = linear(weight, "int4")
    multiply_as_int8(model)
    found = run(model, x, tmp_path / "optimized.onnx")
    own = F.linear(x, int4_blocks(weight))
    np.testing.assert_allclose(found, F.linear(int8_rows(x), int7_rows(int4_blocks(weight))), atol=1e-5, rtol=1e-5)
    assert torch.dist(torch.from_numpy(found), own) < 0.25 * torch.dist(own, x @ weight.T)
    made = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert made.count("MatMulInteger") == made.count("Cast") == made.count("QuantizeLinear") == 1, "of the inputs alone"


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_row_is_the_same_beside_any_others(precision: Quantized) -> None:
    """Beside a row 300 times as large, one of zeros and one of infinity, and among any number of rows."""
    model, x = linear(torch.randn(24, 70), precision), torch.randn(33, 70)
    multiply_as_int8(model)
    alone = np.concatenate([run(model, row) for row in x.split(1)])
    for rows in (2, 3, 8, 33):
        np.testing.assert_array_equal(run(model, x[:rows]), alone[:rows])
    beside = run(model, torch.cat([x, 300 * x[:1], 0 * x[:1], torch.inf * x[:1]]))
    np.testing.assert_array_equal(beside[:33], alone)
    assert not beside[34].any()


def test_an_lstm_in_int8_computes_with_rounded_weights() -> None:
    """Its rows are independent too."""
    lstm, x = torch.nn.LSTM(12, 8, bias=False), torch.randn(5, 3, 12)
    gates = torch.cat([torch.arange(8) + 8 * gate for gate in (0, 3, 1, 2)])  # i, o, f, c
    w, r = (weight.detach()[gates][None].numpy() for weight in (lstm.weight_ih_l0, lstm.weight_hh_l0))
    shapes = ("float[5, B, 12] x", "float[5, 1, B, 8] y")
    model = quantize(graph(*shapes, "y = LSTM <hidden_size = 8> (x, w, r)", w=w, r=r), "int8")
    floats = [value for value in model.graph.initializers.values() if value.dtype == ir.DataType.FLOAT]
    assert {str(value.name) for value in floats} == {"w_scale", "r_scale"}
    with FakeQuantized("int8"), torch.no_grad():
        own = lstm(x)[0]
    found = run(model, x)
    np.testing.assert_allclose(found[:, 0], own, atol=1e-6)
    assert torch.dist(own, lstm(x)[0]) > 1e-2
    beside = run(model, torch.cat([x, 300 * x], dim=1))
    np.testing.assert_array_equal(beside[:, :, :3], found)


def test_int4_weights_that_are_too_many_are_not_multiplied_as_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, expected in ((24 * 70, "MatMulInteger"), (24 * 70 - 1, "MatMulNBits")):
        monkeypatch.setattr("seqlab_export.passes.int8_products.MOST", most)
        model = linear(torch.randn(24, 70), "int4")
        multiply_as_int8(model)
        assert expected in {node.op_type for node in model.graph}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_a_large_table_is_quantised_as_the_output_layer_of_both_graphs(precision: Any, tmp_path: Path) -> None:
    model = DecoderLM(5000, 32, d_model=64, num_layers=1, mixer=Attention).eval()
    export_graphs(plan_export(model, None, seq_len=32, precision=precision), tmp_path)
    assert products(tmp_path / "model.onnx") == {"MatMulInteger"}
    assert products(tmp_path / "step.onnx") == {"MatMulInteger" if precision == "int8" else "MatMulNBits"}
    if precision == "int4":
        # 5 bits a weight, scales included, once for both graphs; the table is stored whole beside its layer.
        layers, table = (sum(weight.numel() for weight in model.parameters()), model.embedding.weight.numel())
        assert (tmp_path / "weights.bin").stat().st_size < 1.1 * (5 / 8 * layers + 4 * table)


def products(path: Path) -> set[str]:
    """The matrix-product operators of a graph."""
    return {name for name in operators(path) if name.startswith(("MatMul", "Gemm", "DynamicQuantizeMatMul"))}


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


@pytest.mark.slow
def test_int4_weights_are_not_multiplied_as_int8_where_the_proof_forbids_it(tmp_path: Path) -> None:
    """One channel of an input is so large that the other blocks are lost in its range."""
    model = BagOfWords(TOKENIZER.vocab_size, 3, 32, d_model=64).eval()
    options: Any = {"seq_len": 32, "precision": "int4"}
    export_bundle(model, TOKENIZER, tmp_path / "even", **options)
    assert products(tmp_path / "even" / "encoder.onnx") == {"MatMulInteger"}
    with torch.no_grad():
        model.embedding.weight[:, 0] += 1000
        model.head.weight[:, :32] = 0
    export_bundle(model, TOKENIZER, tmp_path / "uneven", **options)
    assert products(tmp_path / "uneven" / "encoder.onnx") == {"MatMulNBits"}


STORED = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "int8": "INT8", "int4": "UINT4"}


@pytest.mark.slow
@pytest.mark.parametrize("precision", STORED)
def test_a_bundle_is_proven_in_its_precision(precision: Any, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    report = export_bundle(toy(Attention, RoPE, 1), TOKENIZER, folder, seq_len=32, precision=precision)
    assert report.ok and load_manifest(folder).precision == precision
    worst = max(check.error for check in report.checks if check.error is not None)
    assert worst > 1e-4  # it is no fp32 model
    stored = {
        tensor.data_type
        for file in ("model.onnx", "step.onnx")
        for tensor in onnx.load(folder / file).graph.initializer
        if len(tensor.dims) == 2 and int(np.prod(tensor.dims)) > TOKENIZER.vocab_size * 16
    }
    assert stored == {onnx.TensorProto.DataType.Value(STORED[precision])}
    if precision == "int4":
        assert products(folder / "model.onnx") == {"MatMulInteger"}
        assert products(folder / "step.onnx") == {"MatMulNBits"}
    if precision == "int8":
        _check_that_a_wrong_scale_is_found(folder)
    if precision == "bf16":
        _check_that_coarser_weights_are_found(folder)


def _check_that_a_wrong_scale_is_found(folder: Path) -> None:
    """Multiplies the scale of one linear layer's weights by 1.5."""
    for file in ("model.onnx", "step.onnx"):
        model = onnx.load(folder / file, load_external_data=False)
        scales = [tensor for tensor in model.graph.initializer if tensor.name.endswith("_scale")]
        scale = max(scales, key=lambda tensor: tensor.dims[0])  # the first layer's feed-forward
        scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale, str(folder)) * np.float32(1.5), scale.name))
        (folder / file).write_bytes(model.SerializeToString())
    reseal(folder)
    assert {check.kind for check in verify_bundle(folder).failures} == {"prefill", "chunks", "step", "long"}


def _check_that_coarser_weights_are_found(folder: Path) -> None:
    """Keeps 4 bits after the leading one where bfloat16 has 7."""
    weights = np.fromfile(folder / "weights.bin", dtype=np.uint16)
    (weights & 0xFFF8).tofile(folder / "weights.bin")
    reseal(folder)
    assert {check.kind for check in verify_bundle(folder).failures} == {"weights"}


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
    assert kinds == {"table": onnx.TensorProto.BFLOAT16, "odd": onnx.TensorProto.FLOAT, "small": onnx.TensorProto.FLOAT}
    assert [node.op_type for node in proto.graph.node].count("Cast") == 1
    feed: dict[str, Any] = {"tokens": draw.integers(16, size=5), "c": np.array(True)}
    for ours, theirs in zip(results(stored, **feed), results(plain, **feed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("mixer", "positions"), [(Attention, RoPE), (GRU, NoPositions)])
def test_the_file_has_half_the_bytes_and_computes_the_rounded_model(mixer: Any, positions: Any, tmp_path: Path) -> None:
    """The table is the output layer too; it is stored once."""
    model = DecoderLM(300, 32, d_model=64, num_layers=1, mixer=mixer, positions=positions)
    model = in_dtype(randomized(model).float().eval(), "bf16")
    stored: dict[str, Precision] = {"bf16": "bf16", "rounded": "fp32"}
    for name, precision in stored.items():
        (tmp_path / name).mkdir()
        export_graphs(plan_export(model, None, seq_len=32, precision=precision), tmp_path / name)
    size, full = ((tmp_path / name / "weights.bin").stat().st_size for name in stored)
    assert 0.49 * full < size < 0.51 * full
    tensors = onnx.load(tmp_path / "bf16" / "step.onnx").graph.initializer
    weights = {tensor.name.removeprefix("model."): numpy_helper.to_array(tensor) for tensor in tensors}
    held, parameters = {n for n, a in weights.items() if a.dtype == ml_dtypes.bfloat16}, dict(model.named_parameters())
    assert {name for name, parameter in parameters.items() if parameter.numel() >= 256} <= held
    for name in held & parameters.keys():
        np.testing.assert_array_equal(weights[name], parameters[name].detach().float().numpy())
    feed: dict[str, Any] = {"tokens": np.random.default_rng(0).integers(300, size=(3, 7))}
    feed |= {"pad_mask": np.ones((3, 7), dtype=np.bool_), "scored": np.arange(7)}
    feed |= {f"state_{name}": entry.float().numpy() for name, entry in model.init_state(3).items()}
    feed |= {name: feed[name].astype(np.int64) for name in feed if name.endswith("position")}
    feed |= {name: feed[name].astype(np.bool_) for name in feed if name.endswith("mask")}
    sessions = [ort.InferenceSession(tmp_path / name / "model.onnx") for name in stored]
    found, expected = (session.run(["logits"], feed)[0] for session in sessions)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch's exporter
@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_a_translator_is_proven_in_bf16(kind: str, tmp_path: Path) -> None:
    assert exported(randomized(WRITING[kind]()).float().eval(), tmp_path / "bundle", precision="bf16").ok
