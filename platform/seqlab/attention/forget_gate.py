"""Forget gates of softmax attention, which lower the weights of keys before them (Lin et al. 2025).

B batch, T query length, S key length, D d_model, H heads.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.parts import AttentionPart
from seqlab.mixer import Cuts
from seqlab.nn.numerics import at_least_float32, logsigmoid, running_sum


class ForgetGate(AttentionPart):
    """Lin et al. 2025, "Forgetting Transformer", equation 5: the score of key j for query t gets the sum of log f_l
    over j < l <= t, with one gate f_l = sigmoid(W x_l + b) per head. Their "Pro" block has `QueryKeyNorm` and
    `OutputGate` too, and a token shift, which is left out. A key after its query, under a pattern that allows it, loses
    the same sum over the gates between them.

    The cache holds log f of each token, `forget (B, H, S, 1)`, so that a window forgets what has left it.
    """

    sees_scores = True
    cuts: ClassVar[Cuts] = {"forget_proj": "columns"}

    def __init__(self, d_model: int, num_heads: int, head_dim: int) -> None:
        super().__init__(d_model, num_heads, head_dim)
        self.forget_proj = nn.Linear(d_model, num_heads)

    def rows(self, num_heads: int) -> dict[str, tuple[int, ...]]:
        return {"forget": (num_heads, 1)}

    def cached(self, x: Tensor, pad_mask: Tensor | None) -> dict[str, Tensor]:
        log_f = logsigmoid(self.forget_proj(x)).mT.unsqueeze(-1)  # (B, H, T, 1)
        return {"forget": log_f if pad_mask is None else log_f * pad_mask[:, None, :, None]}

    def bias(self, keys: Keys) -> Tensor:
        log_f = keys.entries["forget"]
        total = running_sum(at_least_float32(log_f), -2)  # (B, H, S, 1), up to and including each key
        own = keys.own[:, None, :, None].expand(*total.shape[:2], -1, 1)  # (B, H, T, 1)
        bias: Tensor = -(total.gather(-2, own) - total.mT).abs()  # (B, H, T, S)
        return bias.to(log_f.dtype)
