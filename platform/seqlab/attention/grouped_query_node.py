"""One token's attention over a cache of fixed capacity, as one node of onnxruntime's own.

B batch, T query length, H heads, K head_dim, C capacity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.mixer import State


def grouped_query_node(
    qkv: Tensor, state: State, num_heads: int, scale: float, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, State]:
    """`com.microsoft.GroupQueryAttention`, which may write the new key and value where the old cache stands.

    Args:
        qkv: (B, 1, (H + 2 num_kv_heads) K), the heads of queries, keys and values side by side.
        state: `position (B,)` and the caches `k` and `v (B, num_kv_heads, C, K)`.
        scale: on the scores.
        rotation: cosines and sines (C, W/2) by which the node shall rotate; None = nothing is to be rotated any more.

    Returns:
        (B, 1, H K), and the new state.
    """
    position = state["position"]
    num_kv_heads, head_dim = state["k"].shape[1], state["k"].shape[-1]
    output, new_k, new_v = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        [
            qkv,
            None,
            None,
            state["k"],
            state["v"],
            position.to(torch.int32),  # the tokens that each row may see, less one
            (position.max() + 1).to(torch.int32),
            *(rotation or ()),
        ],
        {"num_heads": num_heads, "kv_num_heads": num_kv_heads, "scale": scale, "do_rotary": int(rotation is not None)},
        dtypes=[qkv.dtype] * 3,
        shapes=[[qkv.shape[0], 1, num_heads * head_dim], state["k"].shape, state["v"].shape],
        version=1,
    )
    return output, {"position": position + 1, "k": new_k, "v": new_v}
