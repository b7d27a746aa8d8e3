"""Optional kernels of flash-linear-attention (Yang & Zhang 2024) for `matrix_recurrence`, if the package is installed.

B batch, T length, H heads, K key width, V value width.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from seqlab.nn.updates import Updates

WIDEST_KEY = 256
WRONG_FROM, RIGHT_FROM = TorchVersion("3.4"), TorchVersion("3.7.1")
"""Versions of Triton between which the backward pass of a decay per head is wrong on Hopper; the package refuses it
(flash-linear-attention #640)."""


def usable(updates: Updates) -> bool:
    """True if a kernel applies: on a CUDA device, in half precision (in float32 the kernels multiply in TF32, which
    misses float32 tolerances), without `read` or `erase`, and where its gradients are right."""
    half = updates.v.dtype in (torch.float16, torch.bfloat16)
    plain = updates.read is None and updates.q.shape[-1] <= WIDEST_KEY
    if not (updates.v.is_cuda and half and plain and _installed()):
        return False
    of_channels = updates.beta is None and updates.log_decay.shape[-1] > 1
    return of_channels or not _wrong_gradients(torch.cuda.get_device_capability(updates.v.device))


def run(updates: Updates, state: Tensor) -> tuple[Tensor, Tensor]:
    """Runs the recurrence from `state` (B, H, K, V); returns o (B, T, H, V) and the last matrix."""
    dtype, heads = updates.v.dtype, updates.v.shape[:3]
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v = updates.q.to(dtype), updates.k.to(dtype), updates.v
    g = updates.log_decay.to(wide).expand(*heads, -1)
    options = {"scale": 1.0, "initial_state": state.to(wide), "output_final_state": True}
    if updates.beta is not None:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as delta  # type: ignore[import-not-found]

        o, matrix = delta(q, k, v, g=g[..., 0].contiguous(), beta=updates.beta[..., 0].to(dtype), **options)
    elif g.shape[-1] == 1:
        from fla.ops.simple_gla import chunk_simple_gla  # type: ignore[import-not-found]

        o, matrix = chunk_simple_gla(q, k, v, g=g[..., 0].contiguous(), **options)
    else:
        from fla.ops.gla import chunk_gla  # type: ignore[import-not-found]

        o, matrix = chunk_gla(q, k, v, g=g.contiguous(), **options)
    return o, matrix


@cache
def _wrong_gradients(capability: tuple[int, int]) -> bool:
    return capability[0] == 9 and WRONG_FROM <= TorchVersion(version("triton")) < RIGHT_FROM


@cache
def _installed() -> bool:
    return find_spec("fla") is not None
