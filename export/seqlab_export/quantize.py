"""Quantises the linear layers of a captured graph with onnxruntime's own tools.

int8: weights of MatMul, Gemm and LSTM as 7 bits of an int8, symmetric, a scale for each output channel; activations as
uint8 with the scale of the tensor at hand ("dynamic"). The eighth bit is left free: processors without VNNI
instructions add pairs of products in 16 bits, which it would overflow. int4: weights of MatMul and Gemm alone, a scale
for every 32 of an output channel (`MatMulNBits`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # type: ignore[import-untyped]
from onnxruntime.quantization.onnx_model import ONNXModel  # type: ignore[import-untyped]
from onnxscript import ir

Quantized = Literal["int8", "int4"]

BLOCK = 32
"""Weights that share a scale in int4."""


def quantize(graph: ir.Model, precision: Quantized) -> ir.Model:
    """A graph whose linear layers read quantised weights."""
    _transpose_weights(graph)
    model = ir.to_proto(graph)
    del model.graph.value_info[:]
    quantized = _int8(model) if precision == "int8" else _int4(model)
    return ir.from_proto(quantized)


def _transpose_weights(graph: ir.Model) -> None:
    """Gives every Gemm its weight as (D, O), under a name of its own: onnxruntime would transpose it for others too,
    such as the table of an embedding."""
    for node in list(graph.graph):
        if node.op_type != "Gemm" or not node.attributes.get_int("transB", 0):
            continue
        weight = node.inputs[1]
        assert weight is not None and weight.const_value is not None and weight.name is not None
        name = f"{weight.name}_transposed"
        if name not in graph.graph.initializers:
            tensor = ir.tensor(weight.const_value.numpy().T.copy(), name=name)
            shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
            graph.graph.register_initializer(ir.Value(name=name, const_value=tensor, shape=shape, type=kind))
        node.replace_input_with(1, graph.graph.initializers[name])
        node.attributes["transB"] = ir.AttrInt64("transB", 0)


def _int8(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.onnx"
        quantize_dynamic(
            model,
            path,
            # Opset 23's Attention would become an invalid node.
            op_types_to_quantize=["MatMul", "Gemm", "LSTM"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            # Behind onnxruntime's own nodes it infers no types.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        return onnx.load(path)


def _int4(model: onnx.ModelProto) -> onnx.ModelProto:
    plain = ONNXModel(model)
    plain.replace_gemm_with_matmul()
    quantizer = MatMulNBitsQuantizer(plain.model, block_size=BLOCK, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    found: onnx.ModelProto = quantizer.model.model
    return found
