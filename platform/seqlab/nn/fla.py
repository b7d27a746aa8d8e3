"""Optional kernels of flash-linear-attention (Yang & Zhang 2024) for `matrix_recurrence`, if the package is installed.

B batch, T length, H heads, K key width, V value width.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from seqlab.nn.updates import Updates

WIDEST_KEY = 256


def usable(updates: Updates) -> bool:
    """True if a kernel applies: on a CUDA device, in half precision (in float32 the kernels multiply in TF32, which
    misses float32 tolerances), without `read` or `erase`."""
    half = updates.v.dtype in (torch.float16, torch.bfloat16)
    plain = updates.read is None and updates.q.shape[-1] <= WIDEST_KEY
    return updates.v.is_cuda and half and plain and _installed()


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
def _installed() -> bool:
    return find_spec("fla") is not None
