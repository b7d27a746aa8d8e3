"""Linear attention: a feature map in place of the softmax (Katharopoulos et al. 2020).

B batch, T length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import Updates, matrix_recurrence
from seqlab.nn.recurrent_mixer import RecurrentMixer

FeatureMap = Literal["elu", "relu", "softmax"]


class LinearAttention(RecurrentMixer):
    """Katharopoulos et al. 2020, "Transformers are RNNs", equations 16-20: S_t = S_{t-1} + phi(k_t) v_t^T,
    z_t = z_{t-1} + phi(k_t), and y_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6), the small number as in their code.

    The state is `s (B, H, K, K + 1)`: S, and z as its last column. Nothing is ever forgotten.

    Args:
        num_heads: must divide d_model.
        feature_map: phi. "elu": elu(x) + 1 (their equation 7); "relu" (Kasai et al. 2021); "softmax" over the
            channels (Zhang et al. 2024).
        bias: whether the projections have biases.

    Raises:
        ValueError: a number of heads that does not divide d_model, or another feature map.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        feature_map: FeatureMap = "elu",
        bias: bool = True,
    ) -> None:
        super().__init__(d_model, layer)
        check_heads(num_heads, d_model)
        if feature_map not in ("elu", "relu", "softmax"):
            raise ValueError(f"feature_map must be elu, relu or softmax, got {feature_map}")
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.feature_map = feature_map
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_model, bias=bias)
        self.v_proj = nn.Linear(d_model, d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        heads = (self.num_heads, self.head_dim)
        q, k, v = (torch.unflatten(proj(x), -1, heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        ones = torch.ones_like(v[..., :1])
        updates = Updates(self._features(q), self._features(k), torch.cat((v, ones), dim=-1), torch.zeros_like(ones))
        o, s = matrix_recurrence(updates, state["s"], real, single=single)
        heads_y = o[..., :-1] / (o[..., -1:] + 1e-6)
        return self.out_proj(heads_y.to(x.dtype).flatten(2)), {"s": s}

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        weight = self.k_proj.weight
        return {"s": weight.new_zeros(batch_size, self.num_heads, self.head_dim, self.head_dim + 1)}

    def _features(self, x: Tensor) -> Tensor:
        if self.feature_map == "elu":
            return F.elu(x) + 1
        return F.relu(x) if self.feature_map == "relu" else x.softmax(dim=-1)
