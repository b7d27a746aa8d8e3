"""Logits and loss of a vocabulary that is sharded over ranks; each rank holds the logits of its own tokens.

N rows, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from seqlab.batch import IGNORE
from seqlab.nn.numerics import at_least_float32


def divided_logits(output: Callable[[Any], Any], mesh: DeviceMesh, x: Tensor) -> DTensor:
    """Sharded logits (..., V) of replicated features (..., D), by an output layer sharded by tokens."""
    logits: DTensor = output(DTensor.from_local(x, mesh, [Replicate()], run_check=False))
    return logits


def whole_logits(output: Callable[[Any], Any], mesh: DeviceMesh, x: Tensor) -> Tensor:
    """Logits as in `divided_logits`, gathered on every rank."""
    return divided_logits(output, mesh, x).full_tensor()


def divided_nats(logits: DTensor, targets: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """Cross-entropy of each target in nats, 0 at `IGNORE`: (...), in at least float32. The logits are never gathered
    (Shoeybi et al. 2019, "Megatron-LM", section 3).

    Args:
        logits: (..., V), sharded over V.
        targets: (...), replicated.
        z_loss: coefficient of the added squared log-sum-exp of the logits.
    """
    columns = at_least_float32(logits.to_local()).flatten(0, -2)
    nats: Tensor = _DividedNats.apply(  # type: ignore[no-untyped-call]
        columns, targets.flatten(), logits.device_mesh, logits.shape[-1], label_smoothing, z_loss
    )
    return nats.view(targets.shape)


class _DividedNats(torch.autograd.Function):
    """Cross-entropy from columns (N, own tokens). With p = softmax(logits) and q the smoothed target the loss is
    log sum exp(logits) - q . logits + z log^2 sum exp(logits), and its gradient p (1 + 2 z log sum exp(logits)) - q."""

    @staticmethod
    def forward(
        ctx: Any, columns: Tensor, targets: Tensor, mesh: DeviceMesh, vocab_size: int, smoothing: float, z_loss: float
    ) -> Tensor:
        own = columns.shape[1]
        found = targets - mesh.get_local_rank() * -(-vocab_size // mesh.size())  # even shards, the last smaller
        found = found.where((found >= 0) & (found < own), IGNORE)
        expected = -(1 - smoothing) * F.nll_loss(columns, found, ignore_index=IGNORE, reduction="none")
        if smoothing:
            expected += smoothing / vocab_size * columns.sum(1)
        parts = torch.stack((columns.logsumexp(1), expected))
        parts = DTensor.from_local(parts[None], mesh, [Shard(0)], run_check=False).full_tensor()  # (ranks, 2, N)
        log_sum, expected = parts[:, 0].logsumexp(0), parts[:, 1].sum(0)
        ctx.save_for_backward((columns - log_sum[:, None]).exp_(), targets, found)
        ctx.smoothing, ctx.even = smoothing, smoothing / vocab_size
        ctx.of_p = 1 + 2 * z_loss * log_sum[:, None]
        return (log_sum - expected + z_loss * log_sum.square()).where(targets != IGNORE, 0)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        p, targets, found = ctx.saved_tensors
        upstream = upstream.where(targets != IGNORE, 0)[:, None]
        gradient = (p * ctx.of_p).sub_(ctx.even).mul_(upstream)
        mine = found != IGNORE
        gradient[mine, found[mine]] -= (1 - ctx.smoothing) * upstream[mine, 0]
        return gradient, None, None, None, None, None
