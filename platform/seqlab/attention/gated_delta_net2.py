"""Gated DeltaNet-2: the delta rule with separate gates for erasing and for writing (Hatamizadeh et al. 2026).

B batch, T length, H heads, K head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.attention.kimi_delta import KimiDeltaAttention
from seqlab.nn.updates import Updates


class GatedDeltaNet2(KimiDeltaAttention):
    """Gated delta rule with separate gates for what it erases and for what it writes.

    Hatamizadeh, Choi & Kautz 2026, "Gated DeltaNet-2": S_t = (I - k_t (b_t * k_t)^T) diag(alpha_t) S_{t-1} +
    k_t (w_t * v_t)^T, with a gate for each channel of the erased key, b_t = sigmoid(W_b x_t), and of the written value,
    w_t = sigmoid(W_w x_t). With b_t = w_t = beta_t it is `KimiDeltaAttention`, from which it has everything else.

    The state is documented in `LinearFamily`, with V = K.

    Args:
        num_heads: number of heads H.
        head_dim: key and value width K; None = d_model / num_heads.
        conv_width: kernel width W; None = no convolution, and no swish of queries, keys and values either.
        negative_eigenvalues: whether b ranges up to 2, so that a write can negate the stored value (Grazzi et al.
            2024).

    Raises:
        ValueError: head_dim is None and num_heads does not divide d_model.
    """

    def make_write(self, width: int) -> None:
        self.erase_proj = nn.Linear(self.d_model, width, bias=False)
        self.write_proj = nn.Linear(self.d_model, width, bias=False)

    def write(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Updates:
        # (B, T, H, K) each
        erase, write = (
            torch.unflatten(layer(x).sigmoid(), -1, (self.num_heads, -1))
            for layer in (self.erase_proj, self.write_proj)
        )
        # The matrix is read before the write, and already decayed.
        return Updates(q, k, write * v, log_decay, read=log_decay.exp() * self.beta_scale * erase * k)
