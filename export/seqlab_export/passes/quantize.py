"""Compression of the weights of a captured graph: quantisation to int8 or int4, or storage as bfloat16.

int8: see `int8_rows`. int4: only weights of MatMul, with onnxruntime's tool, with one scale for every 32 weights of an
output channel (`MatMulNBits`, which `int8_products` rewrites).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxscript import ir

from seqlab_export.capture.weights import SMALLEST_BYTES
from seqlab_export.passes.int8_rows import quantize_to_int8

Quantized = Literal["int8", "int4"]

BLOCK = 32
"""Number of weights that share a scale in int4."""


def quantize(graph: ir.Model, precision: Quantized) -> ir.Model:
    """A graph whose linear layers read quantised weights. The input must have no Gemm, see `split_gemms`."""
    if precision == "int8":
        quantize_to_int8(graph)
        return graph
    kept = _other_products(graph)
    model = ir.to_proto(graph)
    del model.graph.value_info[:]
    before = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    quantized = _int4(model, kept)
    after = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in quantized.graph.initializer}
    for name in sorted(before.keys() - after.keys()):
        _check_blocks(name, before[name], after)
    return ir.from_proto(quantized)


def _other_products(graph: ir.Model) -> list[str]:
    """Names of products with a vector, or with a matrix per head. These are not linear layers and stay unquantised."""
    names = []
    for number, node in enumerate(ir.traversal.RecursiveGraphIterator(graph.graph)):
        if node.op_type == "MatMul":
            weight = node.inputs[1]
            node.name = node.name or f"MatMul_{number}"
            if weight is not None and weight.const_value is not None and len(weight.const_value.shape) != 2:
                names.append(node.name)
    return names


def _check_blocks(name: str, weight: NDArray[np.float32], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Checks that each block of an output has its own scale and each weight (D, O) is the nearest level.

    Raises:
        ValueError: a scale or a weight is wrong.
    """
    if f"{name}_Q4" not in tensors:
        return
    packed, scale = tensors[f"{name}_Q4"], tensors[f"{name}_scales"]
    levels = np.stack([packed & 15, packed >> 4], axis=-1).astype(np.float32).reshape(*packed.shape[:2], -1) - 8
    levels.reshape(len(levels), -1)[:, len(weight) :] = 0  # Padding of the last block.
    rows = np.pad(weight.T, ((0, 0), (0, -len(weight) % BLOCK)))
    weight = rows.reshape(levels.shape)
    scale = scale.reshape(*levels.shape[:2], 1)
    wanted = np.abs(weight).max(axis=-1, keepdims=True) / 8
    used = np.broadcast_to(wanted, weight.shape) > 0
    close = np.abs(np.abs(scale) - wanted) <= 1e-5 * wanted
    # There is no level 8.
    near = np.abs(levels * scale - weight) <= wanted * np.where(levels == 7, 1.0001, 0.5001)
    if not (np.broadcast_to(close, weight.shape) & near)[used].all():
        raise ValueError(f"onnxruntime's quantising of {name} gave other scales or weights than those of each output")


def split_gemms(model: ir.Model) -> None:
    """Replaces every Gemm by MatMul and Add, and its weight by a separate (D, O) initializer: onnxruntime would also
    transpose the weight for its other users, such as an embedding."""
    graph = model.graph
    for node in [node for node in graph if node.op_type == "Gemm"]:
        x, weight, *biases = node.inputs
        assert weight is not None and weight.const_value is not None and weight.name is not None
        if node.attributes.get_int("transB", 0):
            name = f"{weight.name}_transposed"
            if name not in graph.initializers:
                tensor = ir.tensor(weight.const_value.numpy().T.copy(), name=name)
                shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
                graph.register_initializer(ir.Value(name=name, const_value=tensor, shape=shape, type=kind))
            weight = graph.initializers[name]
        nodes = [ir.node("MatMul", [x, weight])]
        nodes += [ir.node("Add", [nodes[0].outputs[0], bias]) for bias in biases]
        ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, nodes[-1].outputs)


def _int4(model: onnx.ModelProto, kept: list[str]) -> onnx.ModelProto:
    quantizer = MatMulNBitsQuantizer(
        model, block_size=BLOCK, is_symmetric=True, accuracy_level=4, nodes_to_exclude=kept
    )
    quantizer.process()
    found: onnx.ModelProto = quantizer.model.model
    return found


def store_as_bfloat16(graph: ir.Model) -> None:
    """Stores every weight that bfloat16 represents exactly in half the bytes, except the smallest tensors. The graph
    casts them to float32 for its arithmetic: no runtime needs bfloat16 arithmetic, and onnxruntime casts only once, on
    loading the graph."""
    first = graph.graph[0]
    for name, value in graph.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None, name
        if tensor.dtype != ir.DataType.FLOAT or tensor.nbytes < SMALLEST_BYTES:
            continue
        weight = torch.tensor(tensor.numpy())
        if not torch.equal(weight.bfloat16().float(), weight):
            continue
        cast = ir.node("Cast", [None], {"to": ir.DataType.FLOAT}, name=f"{name}_float32")
        [widened] = cast.outputs
        widened.name, widened.shape, widened.type = f"{name}_float32", value.shape, value.type
        value.replace_all_uses_with(widened)
        cast.replace_input_with(0, value)
        value.const_value = ir.tensor(weight.bfloat16(), name=name)
        value.type = ir.TensorType(ir.DataType.BFLOAT16)
        graph.graph.insert_before(first, cast)
