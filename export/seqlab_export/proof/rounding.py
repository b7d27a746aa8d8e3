"""PyTorch with float32 sums taken term by term, whose error is the same on every machine.

K terms of a sum, u = 2^-24 maximum relative error of one rounding.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.backends import nnpack
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from seqlab_export.proof.widened import BLOCK

DRAWS = 3
"""Minimum number of draws of a case. If a norm divides by a value that nearly cancels, one draw's error is chance."""
MOST_DRAWS = 16
REDUCED_DRAWS = 4
"""Maximum number of draws of a case; in a reduced proof, whose models are wide, outliers weigh less."""

FEW = 160
"""Number of tokens in a case below which more draws are made: one token that nearly cancels dominates the error."""


MANY = 256
"""Minimum number of terms of a product that is taken to sum over a text. Products over features rarely have repeated
terms."""

MOST_PRODUCTS = 2**24
"""Maximum number of products added one by one, in a tenth of a second. For larger products the error is drawn."""


def draws_of(num_tokens: int, *, reduced: bool = False) -> int:
    """Number of draws of a case with `num_tokens` tokens; a reduced proof has no minimum but one."""
    least, most = (1, REDUCED_DRAWS) if reduced else (DRAWS, MOST_DRAWS)
    return min(max(FEW // num_tokens, least), most)


aten = torch.ops.aten

_OF_ONE = 0.425 * 2.0**-24
"""RMS relative error of rounding to float32: u/sqrt(3) at a mantissa of 1 and half that at 2, averaged over mantissas
with uniform logarithms."""


class TermByTerm(TorchDispatchMode):
    """Matrix products and convolutions computed in float64, plus a random error of the size of sequential float32
    summation. Sums over an axis and products over many tokens are actually computed by sequential summation.

    Processors and libraries sum in different lanes and blocks; the more of these, the smaller the error, so PyTorch's
    own error may be half as large on one processor as on another. A sum of terms p_1 ... p_K that is rounded at
    each partial sum s_k has an error of variance (0.425 u)^2 sum s_k^2. Its mean over all orders of the terms is

        (0.425 u)^2 (K + 1) (Q + 2 S^2) / 6,  S = sum p_k,  Q = sum p_k^2,

    and Q is the same product of the squared factors. Over the vectors of a small vocabulary, whose terms repeat, the
    error is not random and grows with K itself.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)
        self.entered: list[ExitStack] = []

    def __enter__(self) -> TermByTerm:
        stack = ExitStack()
        # Decomposes attention and LSTMs into products.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # Its convolutions of batches above 15 rows may give a negative sum of squares.
        stack.enter_context(nnpack.flags(enabled=False))
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
        if func is aten.bmm.default:
            return self._summed(func, *args, terms=args[0].shape[-1])
        if func is aten.mm.default:
            return self._matrix_product(*args)
        if func is aten.addmm.default and not kwargs:
            bias, a, b = args
            return bias + self._matrix_product(a, b)
        if func is aten.convolution.default:
            x, weight, bias, *how = args
            y = self._summed(lambda a, b: func(a, b, None, *how), x, weight, terms=weight[0].numel())
            return y if bias is None else y + bias[:, None]
        if func is aten.sum.dim_IntList and args[0].is_floating_point() and len(args[1] or ()) == 1:
            return _one_after_the_other(*args)
        return func(*args, **(kwargs or {}))

    def _matrix_product(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of a (N, K) and b (K, M), over blocks of whose columns the float64 copies stay small."""
        width = max(BLOCK // len(b), 1)
        if b.shape[1] <= width:
            return self._summed(aten.mm.default, a, b, terms=len(b))
        blocks = torch.split(b, width, dim=1)
        return torch.cat([self._summed(aten.mm.default, a, block, terms=len(b)) for block in blocks], dim=1)

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
    """True if a product (B, M, K) x (B, K, N) has enough terms to be a sum over a text, and is small enough to add."""
    return a.shape[2] >= MANY and a.numel() * b.shape[2] <= MOST_PRODUCTS


def _product_one_after_the_other(a: Tensor, b: Tensor) -> Tensor:
    wide, total = b.double(), a.new_zeros((*a.shape[:2], b.shape[2]), dtype=torch.float32)
    for k, column in enumerate(a.double().unbind(2)):
        # The product is exact, as in a fused multiply-add.
        total = (total + column.unsqueeze(2) * wide[:, k : k + 1]).float()
    return total.to(a.dtype)
