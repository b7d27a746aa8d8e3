"""PyTorch with float32 sums taken term by term, which errs alike on every machine.

K terms of a sum, u = 2^-24, the relative error of one rounding at most.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

DRAWS = 3
"""Fewest draws of a case. Where a norm divides by what nearly cancels, one draw's error is chance."""

MOST_DRAWS = 16

FEW = 160
"""Tokens of a case, below which more draws are made: one token that nearly cancels is most of the error."""


MANY = 256
"""Terms of a product that adds over a text: a product over features rarely has the same term twice."""

MOST_PRODUCTS = 2**24
"""Most products that are added one by one, in a tenth of a second. Beyond them the error is drawn."""


def draws_of(num_tokens: int) -> int:
    """Number of draws of a case with `num_tokens` tokens."""
    return min(max(FEW // num_tokens, DRAWS), MOST_DRAWS)


aten = torch.ops.aten

_OF_ONE = 0.425 * 2.0**-24
"""The RMS error of a rounding to float32, relative to what is rounded: u/sqrt(3) at a mantissa of 1 and half of it at
2, over mantissas whose logarithms are uniform."""


class TermByTerm(TorchDispatchMode):
    """Matrix products and convolutions as float64 gives them, with a random error as large as that of float32 sums
    which add one term after the other; a sum over an axis, or a product over many tokens, as just such a sum gives it.

    Processors and libraries sum in lanes and blocks of their own; the more of these, the smaller the error, so that
    PyTorch's own may be half as large on one processor as on another. The sum of terms p_1 ... p_K that is rounded at
    each partial sum s_k has an error of variance (0.425 u)^2 sum s_k^2. Over all orders of the terms its mean is

        (0.425 u)^2 (K + 1) (Q + 2 S^2) / 6,  S = sum p_k,  Q = sum p_k^2,

    and Q is the same product of the squared factors. Over the vectors of a small vocabulary, whose terms are the same
    again and again, the error is no chance and grows with K itself.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)
        self.entered: list[ExitStack] = []

    def __enter__(self) -> TermByTerm:
        stack = ExitStack()
        # So that attention and LSTMs are made of products.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.callback(setattr, torch.backends.mkldnn, "enabled", torch.backends.mkldnn.enabled)
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        self.entered.append(stack)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self.entered.pop().close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.bmm.default and _is_over_time(*args):
            return _product_one_after_the_other(*args)
        if func in (aten.mm.default, aten.bmm.default):
            return self._summed(func, *args, terms=args[0].shape[-1])
        if func is aten.addmm.default and not kwargs:
            bias, a, b = args
            return bias + self._summed(aten.mm.default, a, b, terms=a.shape[-1])
        if func is aten.convolution.default:
            x, weight, bias, *how = args
            y = self._summed(lambda a, b: func(a, b, None, *how), x, weight, terms=weight[0].numel())
            return y if bias is None else y + bias[:, None]
        if func is aten.sum.dim_IntList and args[0].is_floating_point() and len(args[1] or ()) == 1:
            return _one_after_the_other(*args)
        return func(*args, **(kwargs or {}))

    def _summed(self, product: Any, a: Tensor, b: Tensor, *, terms: int) -> Tensor:
        exact = product(a.double(), b.double())
        squares = product(a.float().square(), b.float().square())
        scale = squares.add_(exact.float().square(), alpha=2).mul_((terms + 1) / 6).sqrt_().mul_(_OF_ONE)
        error = torch.randn(scale.shape, generator=self.generator).mul_(scale)
        rounded: Tensor = (exact + error).to(a.dtype)
        return rounded


def _one_after_the_other(x: Tensor, axes: list[int], keepdim: bool = False) -> Tensor:
    first, *rest = (x if x.dtype == torch.float64 else x.float()).unbind(axes[0])
    total = first.clone()
    for term in rest:
        total += term
    return (total.unsqueeze(axes[0]) if keepdim else total).to(x.dtype)


def _is_over_time(a: Tensor, b: Tensor) -> bool:
    """Returns True if a product (B, M, K) x (B, K, N) has so many terms that they are those of a text."""
    return a.shape[2] >= MANY and a.numel() * b.shape[2] <= MOST_PRODUCTS


def _product_one_after_the_other(a: Tensor, b: Tensor) -> Tensor:
    wide, total = b.double(), a.new_zeros((*a.shape[:2], b.shape[2]), dtype=torch.float32)
    for k, column in enumerate(a.double().unbind(2)):
        # The product is exact, as a processor's that multiplies and adds at once.
        total = (total + column.unsqueeze(2) * wide[:, k : k + 1]).float()
    return total.to(a.dtype)
