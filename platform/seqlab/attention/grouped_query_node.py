"""One token's attention over a cache of fixed capacity, as one node of onnxruntime's own.

B batch, T query length, H heads, K head_dim, C capacity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.attention.heads import join_heads, split_heads
from seqlab.mixer import State


def grouped_query_node(q: Tensor, k: Tensor, v: Tensor, state: State, scale: float) -> tuple[Tensor, State]:
    """`com.microsoft.GroupQueryAttention`, which may write the new key and value where the old cache stands.

    Args:
        q: (B, H, 1, K), rotated where it is to be.
        k, v: (B, num_kv_heads, 1, K).
        state: `position (B,)` and the caches `k` and `v (B, num_kv_heads, C, K)`.
        scale: on the scores.

    Returns:
        (B, H, 1, K), and the new state.
    """
    position = state["position"]
    output, new_k, new_v = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        [
            *(join_heads(part) for part in (q, k, v)),
            state["k"],
            state["v"],
            position.to(torch.int32),  # the tokens that each row may see, less one
            (position.max() + 1).to(torch.int32),
        ],
        {"num_heads": q.shape[1], "kv_num_heads": k.shape[1], "scale": scale},
        dtypes=[q.dtype] * 3,
        shapes=[[q.shape[0], 1, q.shape[1] * q.shape[3]], state["k"].shape, state["v"].shape],
        version=1,
    )
    return split_heads(output, q.shape[-1]), {"position": position + 1, "k": new_k, "v": new_v}
