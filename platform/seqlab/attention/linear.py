"""Linear attention: a feature map in place of the softmax (Katharopoulos et al. 2020).

B batch, T length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily
from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence
from seqlab.nn.updates import Updates

FeatureMap = Literal["elu", "relu", "softmax"]


class LinearAttention(LinearFamily):
    """Katharopoulos et al. 2020, "Transformers are RNNs", equations 16-20: S_t = S_{t-1} + phi(k_t) v_t^T,
    z_t = z_{t-1} + phi(k_t), and y_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6), with the epsilon of the authors' code.

    The state is documented in `LinearFamily`; `s (B, H, K, K + 1)` holds S with z as its last column. There is no
    decay.

    Args:
        num_heads: number of heads; must divide d_model.
        feature_map: phi. "elu": elu(x) + 1 (their equation 7); "relu" (Kasai et al. 2021); "softmax" over the
            channels (Zhang et al. 2024).
        conv_width: kernel width of a short convolution over queries, keys and values; None = no convolution.
        bias: whether the projections have biases.

    Raises:
        ValueError: num_heads does not divide d_model, or the feature map is unknown.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        feature_map: FeatureMap = "elu",
        conv_width: int | None = None,
        bias: bool = True,
    ) -> None:
        check_heads(num_heads, d_model)
        if feature_map not in ("elu", "relu", "softmax"):
            raise ValueError(f"feature_map must be elu, relu or softmax, got {feature_map}")
        width = d_model // num_heads
        super().__init__(
            d_model,
            layer,
            num_heads=num_heads,
            head_dim=width,
            value_dim=width,
            columns=width + 1,
            conv_width=conv_width,
            bias=bias,
        )
        self.feature_map = feature_map
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q, k and v (B, T, H, K)
        ones = torch.ones_like(v[..., :1])  # (B, T, H, 1)
        # z is accumulated as one extra value channel that is always 1.
        updates = Updates(self._features(q), self._features(k), torch.cat((v, ones), dim=-1), torch.zeros_like(ones))
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, K + 1), s (B, H, K, K + 1)
        heads_y = o[..., :-1] / (o[..., -1:] + 1e-6)  # (B, T, H, K)
        return self.out_proj(heads_y.to(x.dtype).flatten(2)), conv_state | {"s": s}  # y (B, T, D)

    def _features(self, x: Tensor) -> Tensor:
        if self.feature_map == "elu":
            # elu(x) + 1, in operations that every device has.
            return torch.where(x > 0, x + 1, x.clamp(max=0).exp())
        return F.relu(x) if self.feature_map == "relu" else x.softmax(dim=-1)
