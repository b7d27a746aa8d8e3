"""Folding of constants into weights, where this is needed or does no harm."""

from __future__ import annotations

import sys

from onnxscript import ir
from onnxscript.optimizer import optimize_ir

from seqlab_export.capture.weights import SMALLEST_BYTES


def fold_constants(model: ir.Model) -> None:
    """Folds constants other than weights: the graphs share each weight as stored in the model."""
    optimize_ir(model, should_fold=_may_fold)


def fold_weights(model: ir.Model) -> None:
    """Folds constants and weights, of which only constants are quantised. There is no size limit: a weight that is also
    a table is stored a second time."""
    optimize_ir(model, should_fold=_must_fold, output_size_limit=sys.maxsize)


def _may_fold(node: ir.Node) -> bool | None:
    """False if a weight would be rewritten (e.g. transposed)."""
    constants = [value.const_value for value in node.inputs if value is not None and value.const_value is not None]
    return False if any(tensor.nbytes >= SMALLEST_BYTES for tensor in constants) else None


def _must_fold(node: ir.Node) -> bool | None:
    """True if weights are transposed or concatenated."""
    if node.op_type not in ("Transpose", "Concat"):
        return None
    return True if all(given is not None and given.const_value is not None for given in node.inputs) else None
