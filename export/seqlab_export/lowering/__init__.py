"""Lowering of block operations to nodes: `STANDARD` uses standard ONNX nodes, `ONNXRUNTIME` uses onnxruntime's faster
custom nodes where available. `QUANTIZED` is added to either in int8 and int4: a product takes more nodes there."""

from seqlab_export.lowering.onnxruntime import ONNXRUNTIME
from seqlab_export.lowering.standard import QUANTIZED, STANDARD

__all__ = ["ONNXRUNTIME", "QUANTIZED", "STANDARD"]
