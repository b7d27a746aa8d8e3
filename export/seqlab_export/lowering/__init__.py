"""Lowering of block operations to nodes: `STANDARD` uses standard ONNX nodes, `ONNXRUNTIME` uses onnxruntime's faster
custom nodes where available."""

from seqlab_export.lowering.onnxruntime import ONNXRUNTIME
from seqlab_export.lowering.standard import STANDARD

__all__ = ["ONNXRUNTIME", "STANDARD"]
