"""Operations as onnxruntime's custom nodes (domain com.microsoft), where available.

B batch, T length, H heads, K key width, V value width, C capacity of a cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.attention.patterns import Causal
from seqlab.attention.softmax import Attention, project
from seqlab.mixer import State
from seqlab.nn import matrix_recurrence
from seqlab.nn.heads import join_heads
from seqlab.nn.operation import Lowerings, plain
from seqlab.nn.updates import Updates
from seqlab_export.lowering.standard import STANDARD, one_product, packed


def linear_attention_node(updates: Updates, matrix: Tensor, min_log_decay: float = 0.0) -> tuple[Tensor, Tensor]:
    """One `LinearAttention` for the matrix recurrence, over T tokens; it does not support rules with `read`."""
    if updates.read is not None:
        return matrix_recurrence.step_by_step(updates, matrix, min_log_decay)
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
    # (B, T, H V) to (B, T, H, V)
    return torch.unflatten(o, 2, (heads, -1)), last


def one_linear_attention_node(updates: Updates, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """One `LinearAttention` for one token."""
    if updates.read is not None:
        return plain(matrix_recurrence.one_step)(updates, matrix)
    return linear_attention_node(updates, matrix)


def step_node(attention: Attention, x_t: Tensor, state: State) -> tuple[Tensor, State]:
    """One `GroupQueryAttention` for everything between the projections in a step, if supported: causal attention, with
    no modification of the scores, over a cache of fixed capacity."""
    pattern, positions, scale = attention.scoring
    plainly = type(pattern) is Causal and positions.acts_on != "attention scores"
    if attention.capacity is None or not plainly or attention.sees_scores() or attention.head_dim % 16:
        return plain(Attention.step)(attention, x_t, state)
    x = x_t.unsqueeze(1)
    rotation = positions.rotation(attention.head_dim, state["k"].shape[-2], x.dtype)
    can_rotate = rotation is not None and rotation[0].shape[-1] % 8 == 0
    if len(attention.parts) or (positions.acts_on == "queries and keys" and not can_rotate):
        rotation = None
        qkv = torch.cat([join_heads(part) for part in attention.projected_heads(x, state, None)], dim=-1)
    else:
        qkv = packed(x_t, (attention.q_proj, attention.k_proj, attention.v_proj)).unsqueeze(1)
    heads, new_state = _group_query_node(qkv, state, attention.num_heads, scale, rotation)
    for part in attention.each_part():
        heads = part.output(heads, x)
    y: Tensor = attention.out_proj(heads.squeeze(1))
    return y, new_state


def _group_query_node(
    qkv: Tensor, state: State, num_heads: int, scale: float, rotation: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, State]:
    """`GroupQueryAttention`, which may write the new key and value to the old cache in place.

    Args:
        qkv: (B, 1, (H + 2 num_kv_heads) K), concatenated heads of queries, keys and values.
        state: `position (B,)` and the caches `k` and `v (B, num_kv_heads, C, K)`.
        scale: factor on the scores.
        rotation: cosines and sines (C, W/2) of the node's rotary embedding; None = no rotation in the node.

    Returns:
        Output (B, 1, H K), and the new state.
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
            position.to(torch.int32),  # number of tokens visible to each row, minus one
            (position.max() + 1).to(torch.int32),
            *(rotation or ()),
        ],
        {"num_heads": num_heads, "kv_num_heads": num_kv_heads, "scale": scale, "do_rotary": int(rotation is not None)},
        dtypes=[qkv.dtype] * 3,
        shapes=[[qkv.shape[0], 1, num_heads * head_dim], state["k"].shape, state["v"].shape],
        version=1,
    )
    return output, {"position": position + 1, "k": new_k, "v": new_v}


ONNXRUNTIME: Lowerings = {
    **STANDARD,
    matrix_recurrence.over_time: linear_attention_node,
    matrix_recurrence.one_step: one_linear_attention_node,
    project: one_product,
    Attention.step: step_node,
}

ON_CUDA: Lowerings = {Attention.step: plain(Attention.step)}
"""CUDA has `GroupQueryAttention` in half precision only, and its length must be on the host, which waits for it."""
