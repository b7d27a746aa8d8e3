"""A float64 copy of a model that keeps its large matrices in float32 and widens them while they are used.

N inputs of a product, K rows or terms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from seqlab_export.capture.precision import copy_sharing_weights

LEAST = 2**16
"""Minimum number of elements of a matrix that stays in float32."""

BLOCK = 2**18
"""Number of elements that are widened at a time, 2 MB, which a processor's cache holds."""

aten = torch.ops.aten


def in_float64(model: Any) -> Any:
    """A copy of a model that computes in float64. Large float32 matrices of linear layers and embeddings share the
    model's memory."""
    copy = copy_sharing_weights(model)
    layers = [layer for layer in copy.modules() if isinstance(layer, nn.Linear | nn.Embedding)]
    large = {id(layer.weight): layer.weight for layer in layers if layer.weight.numel() >= LEAST}
    widened = {key: nn.Parameter(Widened(weight.detach()), False) for key, weight in large.items()}
    for module in copy.modules():
        for name, given in module._parameters.items():
            if given is not None and id(given) in widened:
                module._parameters[name] = widened[id(given)]
    # Module.double converts in place, except a tensor that is float64 already.
    return copy.double()


class Widened(Tensor):
    """A matrix of float32 that other operations see as float64."""

    in_float32: Tensor

    @staticmethod
    def __new__(cls, in_float32: Tensor) -> Widened:
        made: Widened = Tensor._make_wrapper_subclass(cls, in_float32.shape, in_float32.stride(), dtype=torch.float64)
        made.in_float32 = in_float32
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in (aten.t.default, aten.detach.default, aten.transpose.int):
            return Widened(func(args[0].in_float32, *args[1:]))
        if func is aten.embedding.default:
            return func(args[0].in_float32, *args[1:]).double()
        by_matrix = isinstance(args[-1], Widened) and not isinstance(args[-2], Widened) and not kwargs
        if func in (aten.mm.default, aten.addmm.default) and by_matrix:
            product = product_of(args[-2], args[-1].in_float32)
            return product if func is aten.mm.default else product + args[0]
        wide = tree_map(
            lambda given: given.in_float32.double() if isinstance(given, Widened) else given, (args, kwargs)
        )
        return func(*wide[0], **(wide[1] or {}))


def product_of(a: Tensor, b: Tensor) -> Tensor:
    """The product of a (N, K) in float64 and b (K, M), a block of whose columns is widened at a time."""
    product = a.new_empty(len(a), b.shape[1])
    width = max(BLOCK // len(b), 1)
    for first in range(0, b.shape[1], width):
        columns = slice(first, first + width)
        torch.mm(a, b[:, columns].double(), out=product[:, columns])
    return product
