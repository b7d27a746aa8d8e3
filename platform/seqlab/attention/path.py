"""PaTH attention: the tokens between a key and a query reflect the key, which encodes its position (Yang et al. 2025).

B batch, T query length, S key length, D d_model, H heads, G key-value heads, K head_dim, W convolution width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.linear_family import unit
from seqlab.attention.parts import AttentionPart
from seqlab.attention.scores import allowed_pairs
from seqlab.attention.softmax import Attention
from seqlab.mixer import Cuts, Mixer, State, StateSpec
from seqlab.nn.heads import repeat_heads, split_heads
from seqlab.nn.numerics import at_least_float32, without_autocast
from seqlab.nn.operation import operation
from seqlab.nn.padding import leading_pads, rotate_rows
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.nn.short_conv import ShortConv
from seqlab.positions.base import PositionalEncoding


class PaTHAttention(Attention):
    """Causal attention in which each token reflects the keys before it.

    Yang et al. 2025, "PaTH attention", section 3: causal attention in which the score of key j for query t is
    scale q_t^T H_t H_{t-1} ... H_{j+1} k_j, with H_s = I - beta_s w_s w_s^T, beta_s = 2 sigmoid(u^T x_s + b), and
    w_s = unit(swish(conv(W_up W_down x_s))) for each key-value head. With the part `ForgetGate` it is their PaTH-FoX.

    The state is that of `Attention`, whose cached keys are reflected by each token after them, preceded by
    `conv (B, W - 1, G K)`. Other positional encodings than of the embeddings are refused.

    Args:
        num_heads, num_kv_heads, head_dim, parts, scale, bias, dropout: as in `Attention`.
        rank: rank of W_up W_down.
        conv_width: kernel width W of the short convolution.
    """

    cuts: ClassVar[Cuts] = {}

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        parts: Sequence[Callable[[int, int, int], AttentionPart]] = (),
        rank: int = 32,
        conv_width: int = 3,
        scale: float | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            d_model,
            layer,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            parts=parts,
            scale=scale,
            bias=bias,
            dropout=dropout,
        )
        width = self.num_kv_heads * self.head_dim
        self.w_down, self.w_up = nn.Linear(d_model, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.conv = ShortConv(width, conv_width, bias=False)
        self.beta_proj = nn.Linear(d_model, self.num_kv_heads)

    def attach_positions(self, positions: PositionalEncoding) -> None:
        Mixer.attach_positions(self, positions)

    def sees_scores(self) -> bool:
        return True

    def flops(self, new: int, seen: int) -> int:
        reflected = 2 * new * (2 * seen + new) * self.head_dim * self.num_kv_heads
        return super().flops(new, seen) + reflected + 2 * new * new * (self.head_dim + seen) * self.num_heads

    def state_spec(self) -> StateSpec:
        kept = (entry._replace(kind="revised") if entry.name == "k" else entry for entry in super().state_spec())
        return self.conv.entry, *kept

    def _append(
        self, x: Tensor, heads: tuple[Tensor, Tensor, Tensor], state: State | None, pad_mask: Tensor | None
    ) -> Keys:
        if state is None:
            state = self.init_state(x.shape[0])
        keys = super()._append(x, heads, state, pad_mask)  # entries (B, G, S, K)
        w, conv = self._reflected(x, state["conv"], pad_mask)  # (B, G, T, K)
        beta = 2.0 * self.beta_proj(x).sigmoid().mT.unsqueeze(-1)  # (B, G, T, 1)
        beta = beta if pad_mask is None else beta * pad_mask[:, None, :, None]
        q, k = heads[0], keys.entries["k"]
        with without_autocast(x):
            q_wide, k_wide, w, beta = (at_least_float32(y) for y in (q, k, w, beta))
            own = keys.own.expand(x.shape[0], -1)  # (B, T)
            once = isinstance(x.shape[1], int) and x.shape[1] == 1
            # scores (B, H, T, S), reflected (B, G, S, K)
            scores, reflected = (reflect_once if once else reflect)(q_wide, k_wide, w, beta, own)
        entries = keys.entries | {"scores": scores.to(q.dtype)}
        return keys._replace(entries=entries, state={"conv": conv} | keys.state | {"k": reflected.to(k.dtype)})

    def _scores(self, q: Tensor, keys: Keys) -> tuple[Tensor, Tensor]:
        return self.scoring.scale * keys.entries["scores"], allowed_pairs(self.scoring.pattern, keys)

    def _reflected(self, x: Tensor, conv_state: Tensor, pad_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Unit vectors w (B, G, T, K) along which tokens reflect, and the convolution's new state."""
        w = self.w_up(self.w_down(x))  # (B, T, G K)
        if pad_mask is None:
            w, conv_state = self.conv(w, conv_state)
        else:
            lead = leading_pads(pad_mask)  # (B,)
            w, conv_state = self.conv(rotate_rows(w, lead), conv_state, pad_mask.sum(dim=1))
            w = rotate_rows(w, -lead)
        return unit(split_heads(F.silu(w), self.head_dim)), conv_state


@operation
def reflect(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (B, H, T, S) of reflected keys, not scaled or masked, and the keys (B, G, S, K) after all reflections.

    What the reflections take from the keys, the sum over s of w_s e_s^T, solves the unit lower triangular system
    e_t = beta_t w_t^T (k - sum over s < t of w_s e_s^T), as for the delta rule (their section 4.1).

    Args:
        q: (B, H, T, K).
        k: (B, G, S, K).
        w: (B, G, T, K), unit vectors.
        beta: (B, G, T, 1); 0 at padding.
        own: (B, T), place of each token among the keys; it reflects those before it.
    """
    found = _found(k, w, beta, own)  # (B, G, T, S)
    overlap = (beta * (w @ w.mT)).tril(-1)  # (B, G, T, T)
    taken = torch.linalg.solve_triangular(overlap, found, upper=False, unitriangular=True)  # (B, G, T, S)
    k_all, w_all, taken_all = (repeat_heads(y, q.shape[1]) for y in (k, w, taken))  # (B, H, ...) each
    return q @ k_all.mT - (q @ w_all.mT).tril() @ taken_all, k - taken.mT @ w


def reflect_once(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """`reflect` by a single token."""
    k = k - _found(k, w, beta, own).mT @ w
    return q @ repeat_heads(k, q.shape[1]).mT, k


def _found(k: Tensor, w: Tensor, beta: Tensor, own: Tensor) -> Tensor:
    """beta_t w_t^T k_j (B, G, T, S) for each key j before token t, else 0."""
    places = torch.arange(k.shape[-2], device=k.device)  # (S,)
    earlier = (places < own.unsqueeze(-1)).unsqueeze(1)  # (B, 1, T, S)
    return (beta * (w @ k.mT)).masked_fill(~earlier, 0.0)


def reflect_step_by_step(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Sequential version of `reflect`."""
    places = torch.arange(k.shape[-2], device=k.device)  # (S,)

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        (keys,), (q_t, w_t, beta_t, own_t) = carry, now  # (B, G, S, K), (B, H, K), (B, G, K), (B, G, 1), (B,)
        found = beta_t * (keys * w_t.unsqueeze(-2)).sum(dim=-1)  # (B, G, S)
        found = found.masked_fill((places >= own_t.unsqueeze(-1)).unsqueeze(1), 0.0)
        keys = keys - found.unsqueeze(-1) * w_t.unsqueeze(-2)
        return (keys,), (repeat_heads(keys, q_t.shape[1]) * q_t.unsqueeze(-2)).sum(dim=-1)  # (B, H, S)

    inputs = (q.transpose(1, 2), w.transpose(1, 2), beta.transpose(1, 2), own)
    scores, (keys,) = scan_over_time(step, (k,), inputs)
    return scores.transpose(1, 2), keys
