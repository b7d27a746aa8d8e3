"""Nodes that the operations of the blocks become: `STANDARD`, those of ONNX, and `ONNXRUNTIME`, where onnxruntime has
better ones of its own."""

from seqlab_export.lowering.onnxruntime import ONNXRUNTIME
from seqlab_export.lowering.standard import STANDARD

__all__ = ["ONNXRUNTIME", "STANDARD"]
