"""The matrix recurrence of linear attention as one node of onnxruntime's own.

B batch, T length, H heads, K key width, V value width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from seqlab.nn.matrix_recurrence import Updates


def linear_attention_node(updates: Updates, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """`com.microsoft.LinearAttention` over T tokens from `matrix` (B, H, K, V); it has no rule with `read`.

    Returns:
        o (B, T, H, V) and the last matrix.
    """
    q, k, v, log_decay = (x.flatten(2) for x in updates[:4])
    beta = [] if updates.beta is None else [updates.beta.flatten(2)]
    heads = matrix.shape[1]
    o, last = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::LinearAttention",
        [q, k, v, matrix, log_decay, *beta],
        {
            "q_num_heads": heads,
            "kv_num_heads": heads,
            "update_rule": "gated_delta" if beta else "gated",
            "scale": 1.0,
        },
        dtypes=[v.dtype, matrix.dtype],
        shapes=[v.shape, matrix.shape],
        version=1,
    )
    return torch.unflatten(o, 2, (heads, -1)), last
