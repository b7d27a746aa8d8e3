"""Lowering of block operations to nodes: `STANDARD` uses standard ONNX nodes, `ONNXRUNTIME` uses onnxruntime's faster
custom nodes where available. `QUANTIZED` is added to either in int8 and int4, where a product takes more nodes;
`ON_CUDA` is added for CUDA."""

from seqlab_export.lowering.onnxruntime import ON_CUDA, ONNXRUNTIME
from seqlab_export.lowering.standard import QUANTIZED, STANDARD

__all__ = ["ONNXRUNTIME", "ON_CUDA", "QUANTIZED", "STANDARD"]
