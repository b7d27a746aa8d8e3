"""Sharing of a source's keys and values between its beams, in one row of the state.

In cross-attention, queries do not interact. The k beams of each of N sources can therefore be treated as k positions:
the queries of a step, (N k, H, 1, K), are reshaped to (N, H, k, K).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from onnxscript import ir
from onnxscript.rewriter import RewriteRule, rewrite


@dataclass
class SourceKeys:
    """A rewrite of a step's attention of a query (N k, H, 1, K) to keys and values (N, H, M, K) with a mask (N, M).

    Attributes:
        read: names of the inputs that are computed from a source.
        shared: names of the inputs that now have one row per source; the batch may have several consecutive rows per
            source.
    """

    read: Collection[str]
    shared: set[str] = field(default_factory=set)

    def share(self, step: ir.Model) -> None:
        """Rewrites a step, and adds the inputs concerned to `shared`."""
        tokens, *others = step.graph.inputs
        # The capture may read the batch size from any input; it must be read from the tokens.
        for value in others:
            for node, _ in list(value.uses()) if value.name in self.read else ():
                if node.op_type == "Shape" and node.attributes.get_int("start", 0) == 0:
                    node.replace_input_with(0, tokens)
        rewrite(step, [RewriteRule(self._pattern, self._of_each_source, self._can_share)])

    def _pattern(self, op: Any, query: Any, keys: Any, values: Any, mask: Any, axes: Any, shape: Any) -> Any:
        each_query = op.Expand(op.Unsqueeze(mask, axes), shape)
        return op.Attention(query, keys, values, each_query, _outputs=["heads"])

    def _can_share(self, context: Any, keys: ir.Value, values: ir.Value, mask: ir.Value, **_: Any) -> bool:
        return keys.name not in self.shared and all(map(self._is_read_once, (keys, values, mask)))

    def _of_each_source(
        self,
        op: Any,
        query: ir.Value,
        keys: ir.Value,
        values: ir.Value,
        mask: ir.Value,
        axes: ir.Value,
        heads: ir.Value,
        **_: Any,
    ) -> ir.Value:
        attention = heads.producer()
        assert attention is not None
        self.shared |= {str(value.name) for value in (keys, values, mask)}

        def transposed(value: ir.Value) -> ir.Value:
            found: ir.Value = op.Transpose(value, perm=[0, 2, 1, 3])
            return found

        # In Reshape, 0 keeps a dimension unchanged.
        sources = op.Shape(keys, start=0, end=1)
        asked = op.Reshape(transposed(query), op.Concat(sources, op.Constant(value_ints=[-1, 0, 0]), axis=0))
        beams = op.Shape(asked, start=1, end=2)
        each_beam = op.Concat(op.Constant(value_ints=[1, 1]), beams, op.Constant(value_ints=[1]), axis=0)
        reals = op.Expand(op.Unsqueeze(mask, axes), each_beam)
        found = op.Attention(transposed(asked), keys, values, reals, **attention.attributes)
        return transposed(op.Reshape(transposed(found), op.Constant(value_ints=[-1, 1, 0, 0])))

    def _is_read_once(self, value: ir.Value) -> bool:
        """True if the value was computed from a source, and only one node reads more than its shape."""
        readers = [node for node, _ in value.uses() if node.op_type != "Shape"]
        return value.is_graph_input() and value.name in self.read and len(readers) == 1
