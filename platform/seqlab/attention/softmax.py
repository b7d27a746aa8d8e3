"""Multi-head softmax attention with a KV cache as its state.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.parts import AttentionPart
from seqlab.attention.patterns import Causal, Pattern
from seqlab.attention.scores import Scoring, SelfAttention, scores_of
from seqlab.mixer import Cuts, State
from seqlab.nn.heads import check_grouped_heads, join_heads, part_of, repeat_heads, split_heads
from seqlab.nn.operation import operation
from seqlab.positions.base import NoPositions, PositionalEncoding


class Attention(SelfAttention):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2), grouped-query if there are fewer key-value heads
    (Ainslie et al. 2023).

    The state is the KV cache: `position (B,)`, `key_mask (B, S)`, `k` and `v (B, num_kv_heads, S, K)`. It grows by T
    positions per call. With a window it is `position`, and `k` and `v` of the last `window` keys. A non-causal pattern
    has no state.

    Args:
        num_heads: number of query heads.
        num_kv_heads: number of key and value heads; must divide num_heads. None = num_heads, 1 = multi-query.
        head_dim: channels K per head; None = d_model / num_heads, which must be a whole number.
        pattern: factory of the mask pattern: the keys a query may attend to.
        positions: factory of this layer's own positional encoding, on queries and keys or on scores, called with
            d_model and 0; `NoPositions` for a layer without positions (SmolLM3). None = the model's encoding.
        parts: factories of modifications, applied in this order; each is called with d_model, num_heads and head_dim.
        scale: factor on the scores; None = 1 / sqrt(K).
        bias: whether the projections have biases.
        dropout: dropout probability on the attention weights, in training.

    Raises:
        ValueError: the heads do not divide as required, or the layer's own positions have a limit or act on embeddings.
    """

    cuts: ClassVar[Cuts] = {"q_proj": "columns", "k_proj": "columns", "v_proj": "columns", "out_proj": "rows"}

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        pattern: Callable[[], Pattern] = Causal,
        positions: Callable[[int, int], PositionalEncoding] | None = None,
        parts: Sequence[Callable[[int, int, int], AttentionPart]] = (),
        scale: float | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, layer)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_grouped_heads(d_model, num_heads, num_kv_heads, head_dim)
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.own_positions = None if positions is None else _own(positions(d_model, 0))
        sees = pattern()
        self.causal, self.first_call = sees.causal, sees.first_call
        self.scoring = Scoring(sees, NoPositions(d_model, 0), self.head_dim**-0.5 if scale is None else scale)
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * self.head_dim, d_model, bias=bias)
        self.parts = nn.ModuleList(part(d_model, num_heads, self.head_dim) for part in parts)
        self.rows = self._rows()

    def attach_positions(self, positions: PositionalEncoding) -> None:
        positions = positions if self.own_positions is None else self.own_positions
        positions.attach(self.num_heads, self.head_dim)
        self.scoring = self.scoring._replace(positions=positions)

    def cut(self, ranks: int) -> None:
        unplanned = [part for part in self.each_part() if list(part.parameters()) and not part.cuts]
        for part in [*unplanned, *([self.scoring.positions] if self.scoring.positions.of_each_head else [])]:
            raise ValueError(
                f"{type(part).__name__} has per-head data that tensor parallelism cannot shard; train with ddp or "
                "fsdp2 instead"
            )
        self.num_heads = part_of(self.num_heads, ranks, "num_heads")
        self.num_kv_heads = part_of(self.num_kv_heads, ranks, "num_kv_heads")
        self.rows = self._rows()

    def flops(self, new: int, seen: int) -> int:
        of_parts = sum(part.flops(new, seen, self.num_heads) for part in self.each_part())
        return of_parts + self.flops_of_heads(new, seen, self.num_heads, self.head_dim, self.head_dim)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        if state is not None:
            self.check_causal()
        q, k, v = self.projected_heads(x, state, pad_mask)  # q (B, H, T, K), k and v (B, num_kv_heads, T, K)
        keys = self._append(x, (q, k, v), state, pad_mask)  # keys.entries (B, num_kv_heads, S, K)
        if self.sees_scores():
            weights = F.dropout(self._weights(q, keys), self.dropout, self.training)  # (B, H, T, S)
            heads = weights @ repeat_heads(keys.entries["v"], q.shape[1])  # (B, H, T, K)
            relative = self.scoring.positions.values(weights, keys.q_positions, keys.k_positions)
            heads = heads if relative is None else heads + relative
        else:
            heads = self.attend(q, keys.entries["k"], keys.entries["v"], keys)  # (B, H, T, K)
        return self._output(heads, x), keys.state if self.causal else {}

    @operation
    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.forward(x_t.unsqueeze(1), state)  # y (B, 1, D)
        return y.squeeze(1), new_state

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """Attention weights (B, H, T, S) of the queries of x (B, T, D). Rows sum to 1, or to less with a sink."""
        heads = self.projected_heads(x, state, pad_mask)
        return self._weights(heads[0], self._append(x, heads, state, pad_mask))

    def each_part(self) -> list[AttentionPart]:
        return list(self.parts)  # type: ignore[arg-type]

    def sees_scores(self) -> bool:
        return self.scoring.positions.weighs_values or any(part.sees_scores for part in self.each_part())

    def projected_heads(self, x: Tensor, state: State | None, pad_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, K), keys and values (B, num_kv_heads, T, K) of x."""
        flat = project(x, (self.q_proj, self.k_proj, self.v_proj))  # (B, T, H K or num_kv_heads K) each
        q, k, v = (split_heads(part, self.head_dim) for part in flat)  # (B, H or num_kv_heads, T, K) each
        for part in self.each_part():
            q, k = part.queries_keys(q, k)
        q, k = self.rotated(q, k, x, state, pad_mask)
        return q, k, v

    def _rows(self) -> dict[str, tuple[int, ...]]:
        rows: dict[str, tuple[int, ...]] = dict.fromkeys(("k", "v"), (self.num_kv_heads, self.head_dim))
        for part in self.each_part():
            rows |= part.rows(self.num_heads)
        return rows

    def _append(
        self, x: Tensor, heads: tuple[Tensor, Tensor, Tensor], state: State | None, pad_mask: Tensor | None
    ) -> Keys:
        """Appends the keys and values of x (B, T, D), of which `projected_heads` are `heads`, to a state."""
        new = {"k": heads[1], "v": heads[2]}
        for part in self.each_part():
            new |= part.cached(x, pad_mask)
        return self.append(x, new, state, pad_mask)

    def _output(self, heads: Tensor, x: Tensor) -> Tensor:
        """Output y (B, T, D) from the heads' outputs (B, H, T, K)."""
        joined = join_heads(heads)  # (B, T, H K)
        for part in self.each_part():
            joined = part.output(joined, x)
        y: Tensor = self.out_proj(joined)  # (B, T, D)
        return y

    def _scores(self, q: Tensor, keys: Keys) -> tuple[Tensor, Tensor]:
        """Unmasked scores (B, H, T, S), and the mask (B or 1, 1, T, S)."""
        return scores_of(q, keys.entries["k"], keys, self.scoring)

    def _weights(self, q: Tensor, keys: Keys) -> Tensor:
        """Attention weights (B, H, T, S), materialised."""
        scores, allowed = self._scores(q, keys)
        for part in self.each_part():
            bias = part.bias(keys)
            scores = part.scores(scores if bias is None else scores + bias, keys, allowed)
        scores = scores.masked_fill(~allowed, -torch.inf)
        sinks = [sink for sink in [part.sink() for part in self.each_part()] if sink is not None]
        # (B, H, T, 1) each: scores of a key without a value.
        columns = [sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1).to(scores.dtype) for sink in sinks]
        weights: Tensor = torch.cat((scores, *columns), dim=-1).softmax(dim=-1)  # (B, H, T, S + 1 per sink)
        return weights[..., : scores.shape[-1]]  # (B, H, T, S)


def _own(positions: PositionalEncoding) -> PositionalEncoding:
    """Positions of a single layer."""
    if positions.max_seq_len is not None or (
        positions.acts_on == "embeddings" and not isinstance(positions, NoPositions)
    ):
        raise ValueError(
            f"a layer of attention cannot have {type(positions).__name__} of its own; accepted: NoPositions, and "
            "encodings without a limit that act on queries and keys or on scores, such as RoPE and ALiBi"
        )
    return positions


@operation
def project(x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """Outputs of several linear layers for x (..., D)."""
    return [layer(x) for layer in layers]
