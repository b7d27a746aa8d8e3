"""The multiply-adds of each part of a model, as formulae. Elementwise work is not counted, as by PyTorch's
`FlopCounterMode`: norms, activations, gates, rotations, scans, products with one vector.

H heads, K key width, V value width, C chunk length.
"""

from __future__ import annotations

from functools import singledispatch

from torch import nn

from seqlab.attention import (
    Additive,
    AdditiveAttention,
    Attention,
    CrossAttention,
    DeltaNet,
    DifferentialAttention,
    GatedDeltaNet,
    GatedLinearAttention,
    LatentAttention,
    Mamba2,
    MultiplicativeAttention,
)
from seqlab.attention.linear_family import LinearFamily
from seqlab.attention.scores import SelfAttention
from seqlab.models import DecoderLM, EncoderDecoder, MaskedLM, RNNSeq2Seq
from seqlab.nn.matrix_recurrence import CHUNK, SHORTEST_CHUNK
from seqlab.positions import CoPE, Shaw
from seqlab.recurrence import MLSTM, RGLRU, RWKV7, S4D, SLSTM, Mamba
from seqlab.recurrence.s4d import CHUNK as S4D_CHUNK


@singledispatch
def products(part: nn.Module, new: int, seen: int) -> int:
    """Multiply-adds of one sequence in this part, those of its submodules left out.

    Args:
        new: tokens that are read at once; 1 = a step of decoding.
        seen: tokens read by then, the new ones among them; an encoder's memory is taken to be as long.
    """
    return 0


@products.register
def _(part: nn.Linear | nn.Conv1d, new: int, seen: int) -> int:
    return new * part.weight.numel()


@products.register
def _(part: nn.RNNBase | nn.RNNCellBase, new: int, seen: int) -> int:
    return new * sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)


@products.register
def _(part: DecoderLM | EncoderDecoder | RNNSeq2Seq, new: int, seen: int) -> int:
    return new * part.embedding.weight.numel() if part.head is None else 0


@products.register
def _(part: MaskedLM, new: int, seen: int) -> int:
    return new * part.vocab_size * part.transform.out_features


@products.register
def _(part: Attention, new: int, seen: int) -> int:
    return _attention(part, new, seen, part.num_heads, part.head_dim, part.head_dim)


@products.register
def _(part: DifferentialAttention, new: int, seen: int) -> int:
    return 2 * _attention(part, new, seen, part.num_heads, part.head_dim, 2 * part.head_dim)


@products.register
def _(part: LatentAttention, new: int, seen: int) -> int:
    if new == 1:  # what is cached is attended to as it is
        widths = part.kv_rank + part.rope_head_dim, part.kv_rank
    else:
        widths = part.head_dim + part.rope_head_dim, part.head_dim
    return _attention(part, new, seen, part.num_heads, *widths)


def _attention(part: SelfAttention, new: int, seen: int, heads: int, key_width: int, value_width: int) -> int:
    """Multiply-adds of all pairs, masked ones included: a kernel that skips those does less."""
    pattern, positions, _ = part.scoring
    if new == 1 and pattern.window is not None:
        seen = min(seen, pattern.window)
    pairs = new * seen * heads
    more = 0
    if isinstance(positions, Shaw):
        more = new * heads * (2 * positions.max_distance + 1) * key_width * (2 if positions.weighs_values else 1)
    elif isinstance(positions, CoPE):
        more = pairs * key_width + new * heads * positions.num_positions * key_width
    return pairs * (key_width + value_width) + more


@products.register
def _(part: CrossAttention, new: int, seen: int) -> int:
    return 2 * new * seen * part.num_heads * part.head_dim


@products.register
def _(part: AdditiveAttention | MultiplicativeAttention, new: int, seen: int) -> int:
    return new * seen * part.d_model * (1 if isinstance(part.score, Additive) else 2)  # contexts, and scores


@products.register
def _(part: LinearFamily, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.head_dim, part.columns)


@products.register
def _(part: GatedLinearAttention, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.head_dim, part.columns, triangular=True)


@products.register
def _(part: DeltaNet | GatedDeltaNet, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.head_dim, part.columns, writers=1)


@products.register
def _(part: Mamba2, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.d_state, part.head_dim)


@products.register
def _(part: MLSTM, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.head_dim, part.head_dim + 1)


@products.register
def _(part: RWKV7, new: int, seen: int) -> int:
    return part.num_heads * _matrix(new, part.head_dim, part.head_dim, writers=2)


def _matrix(new: int, keys: int, values: int, *, triangular: bool = False, writers: int = 0) -> int:
    """One head of `seqlab.nn.matrix_recurrence` in chunks, without solving the triangular system.

    Args:
        triangular: scores of a decay a channel are computed below the diagonal only.
        writers: how many vectors write into the matrix where it is read first; 0 = it is not.
    """
    if new == 1:  # written and read out; and found, and erased
        return keys * values * (2 + writers)
    size = SHORTEST_CHUNK
    while size < min(new, CHUNK):
        size *= 2
    pairs = size * (size + 1) // 2 if triangular else size * size
    if not writers:
        chunk = pairs * keys + size * size * values + 2 * size * keys * values
    else:
        chunk = 2 * writers * pairs * keys + size * size * (3 * values + keys)
        chunk += size * keys * (3 * values + keys) + keys * keys * values
    return -(-new // size) * chunk


@products.register
def _(part: Mamba, new: int, seen: int) -> int:
    return new * (part.dt_weight.numel() + part.d_inner * part.d_state)


@products.register
def _(part: S4D, new: int, seen: int) -> int:
    if new == 1:  # the state turned and read: each product of complex numbers is four
        return 4 * part.d_model * part.d_state
    size = min(S4D_CHUNK, new)
    of_chunks = -(-new // size) * size * (2 * part.d_state + size)
    return part.d_model * (of_chunks + size * part.d_state)  # and where the sequence ends


@products.register
def _(part: RGLRU, new: int, seen: int) -> int:
    return new * (part.input_gate_weight.numel() + part.recurrent_gate_weight.numel())


@products.register
def _(part: SLSTM, new: int, seen: int) -> int:
    return new * part.feedback_weight.numel()
