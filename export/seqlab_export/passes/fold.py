"""Folding of constants into weights, where this is needed or does no harm."""

from __future__ import annotations

import sys
from typing import Any

from onnxscript import ir
from onnxscript.optimizer import optimize_ir
from onnxscript.rewriter.rules.common import slice_split_rule

from seqlab_export.capture.weights import SMALLEST_BYTES

_split_slices = slice_split_rule.try_rewrite


def _split_slices_of(model: ir.Model, graph: Any, node: ir.Node, **options: Any) -> Any:
    # The rule's first pattern is a Slice. Without this test it reads the whole graph at each node.
    return _split_slices(model, graph, node, **options) if node.op_type == "Slice" else None


slice_split_rule.try_rewrite = _split_slices_of


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
