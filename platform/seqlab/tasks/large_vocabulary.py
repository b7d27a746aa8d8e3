"""Chunked logits for large vocabularies: computed a few rows at a time, so that they are never all in memory.

N rows, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqlab.batch import IGNORE
from seqlab.nn.numerics import at_least_float32
from seqlab.parallel.vocabulary import divided_nats
from seqlab.tasks.task import summed_nats

AT_ONCE = 2**26
"""Maximum number of logits computed at once, 256 MB in float32. Smaller outputs are not chunked."""


class Logits:
    """A model's outputs at each position (...). A model with an `output` layer returns features (..., D), which that
    layer maps to logits (..., V). Any other model returns the logits directly.

    Args:
        read: runs the model and returns its outputs; called with `features=True`, or with no arguments.

    Attributes:
        said: the model's outputs, (..., D) or (..., V).
    """

    def __init__(self, model: Any, read: Callable[..., Tensor]) -> None:
        self.model = model
        self.by_rows = hasattr(model, "output")
        self.said = read(features=True) if self.by_rows else read()

    def of(self, features: Tensor) -> Logits:
        """Logits of other features (..., D) of the same model."""
        return Logits(self.model, lambda **_: features)

    def summed_nats(self, targets: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> tuple[Tensor, Tensor]:
        """Summed cross-entropy of the targets (...) that are not `IGNORE`, and their number, both (). The options are
        the same as in `seqlab.tasks.task.summed_nats`."""

        divided = getattr(self.model, "divided_output", None)

        def loss(said: Tensor, its: Tensor) -> Tensor:
            if divided is not None:
                return divided_nats(divided(said), its, label_smoothing, z_loss).sum()
            return summed_nats(self.logits(said), its, label_smoothing, z_loss)[0]

        return self.summed(loss, targets), (targets != IGNORE).sum()

    def summed(self, loss: Callable[..., Tensor], *beside: Tensor) -> Tensor:
        """Sum () of a loss over chunks.

        Args:
            loss: called with a chunk of `said` and of each tensor beside it; returns its sum, ().
            beside: tensors (...) or (..., D) with a row for each row of `said`.
        """
        chunks = list(self._chunks(*beside))
        if len(chunks) == 1 or not torch.is_grad_enabled():
            return _added(loss, chunks)
        if _in_float16(self.said.device.type):
            # The loss scale, which keeps gradients from underflowing, is known only in the backward pass.
            return _added(partial(checkpoint, loss, use_reentrant=False, preserve_rng_state=False), chunks)
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        return _with_gradients(loss, self.said.flatten(0, -2), chunks, weights)

    def nats_and_best(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Nats of each target (...), 0 where it is `IGNORE`, and the likeliest token at each position: (...) both."""
        nats, best = [], []
        for some, its in self._chunks(targets):
            logits = self.logits(some).flatten(0, -2)
            nats.append(F.cross_entropy(logits, its.flatten(), ignore_index=IGNORE, reduction="none"))
            best.append(logits.argmax(dim=-1))
        return torch.cat(nats).view(targets.shape), torch.cat(best).view(targets.shape)

    def counted_nats(self, targets: Tensor) -> Tensor:
        """Nats of each of the N targets (...) that are not `IGNORE`, (N,)."""
        nats, _ = self.nats_and_best(targets)
        return nats[targets != IGNORE]

    def logits(self, said: Tensor) -> Tensor:
        """Logits (..., V) of a chunk of `said`, in at least float32."""
        return at_least_float32(self.model.output(said) if self.by_rows else said)

    def _chunks(self, *beside: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yields outputs with the tensors beside them: all unchanged if they fit in one chunk, else rows of each."""
        number = self.said.shape[:-1].numel()
        rows = max(1, AT_ONCE // self.model.vocab_size) if self.by_rows else number
        if rows >= number:
            yield self.said, *beside
        else:
            flat = (one.flatten(0, self.said.dim() - 2) for one in (self.said, *beside))
            yield from zip(*(torch.split(one, rows) for one in flat), strict=True)


def _in_float16(device: str) -> bool:
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16


def _added(loss: Callable[..., Tensor], chunks: list[tuple[Tensor, ...]]) -> Tensor:
    """Sum () of a loss over chunks."""
    return torch.stack([loss(*chunk) for chunk in chunks]).sum()


def _with_gradients(
    loss: Callable[..., Tensor],
    features: Tensor,
    chunks: list[tuple[Tensor, ...]],
    weights: list[nn.Parameter],
) -> Tensor:
    """Sum () of a loss over chunks of features (N, D) and what is beside them. Each chunk's gradients are computed
    while its logits are in memory, so that no logits are recomputed.

    Args:
        weights: parameters of the output layer; parameters that the loss does not use are ignored.
    """
    summed = features.new_zeros((), dtype=torch.float64)
    by_rows: list[Tensor] = []
    by_weight: list[Tensor] = []
    for said, *its in chunks:
        said = said.detach().requires_grad_()
        nats = loss(said, *its)
        summed += nats.detach()
        of_rows, *of_weights = torch.autograd.grad(nats, (said, *weights), allow_unused=True)
        if not by_rows:
            weights = [weight for weight, found in zip(weights, of_weights, strict=True) if found is not None]
            of_weights = [found for found in of_weights if found is not None]
            by_weight = [torch.zeros_like(at_least_float32(found)) for found in of_weights]
        by_rows.append(of_rows)
        for found, more in zip(by_weight, of_weights, strict=True):
            found += more
    known: Tensor = _Known.apply(summed.to(nats), (torch.cat(by_rows), *by_weight), features, *weights)  # type: ignore[no-untyped-call]
    return known


class _Known(torch.autograd.Function):
    """A scalar with precomputed gradients with respect to some tensors."""

    @staticmethod
    def forward(ctx: Any, number: Tensor, gradients: tuple[Tensor, ...], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return number.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(upstream * gradient for gradient in ctx.gradients)
