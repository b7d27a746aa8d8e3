"""Position-wise feed-forward layers. A model's feed-forward is a factory called with d_model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import Cuts
from seqlab.nn.heads import part_of


class FeedForward(nn.Module, ABC):
    """Acts on each position independently: (..., D) to (..., D). `cuts` and `cut` are as in `Mixer`."""


class NoFeedForward(FeedForward):
    """No feed-forward: the block omits the whole branch, including its norm and residual."""

    def __init__(self, d_model: int) -> None:
        super().__init__()


class TwoLayers(FeedForward):
    """down(activation(up(x))) (Vaswani et al. 2017, equation 2).

    Args:
        d_ff: inner width; None = ratio * d_model, rounded.
        bias: whether both layers have biases.
        ratio: ratio of the inner width to d_model; used if d_ff is None.

    Raises:
        ValueError: the inner width is below 1.
    """

    cuts: ClassVar[Cuts] = {"up_proj": "columns", "down_proj": "rows"}

    def __init__(self, d_model: int, *, d_ff: int | None = None, bias: bool = True, ratio: float = 4.0) -> None:
        super().__init__()
        d_ff = round(ratio * d_model) if d_ff is None else d_ff
        if d_ff < 1:
            raise ValueError(f"the feed-forward's inner width must be at least 1, got {d_ff}")
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def cut(self, ranks: int) -> None:
        part_of(self.up_proj.out_features, ranks, "the feed-forward's inner width")

    @abstractmethod
    def activation(self, x: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(self.activation(self.up_proj(x)))
        return y


class ReLU(TwoLayers):
    """max(0, x), as in the first Transformer."""

    def activation(self, x: Tensor) -> Tensor:
        return F.relu(x)


class SquaredReLU(TwoLayers):
    """max(0, x)^2 (So et al. 2021, "Primer")."""

    def activation(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class GELU(TwoLayers):
    """gelu(x) (Hendrycks & Gimpel 2016).

    Args:
        exact: True = x Phi(x), as in BERT; False = the tanh approximation, as in GPT-2.
        d_ff, bias, ratio: inner width, biases and width ratio, as in `TwoLayers`.
    """

    def __init__(
        self, d_model: int, *, d_ff: int | None = None, bias: bool = True, ratio: float = 4.0, exact: bool = False
    ) -> None:
        super().__init__(d_model, d_ff=d_ff, bias=bias, ratio=ratio)
        self.exact = exact

    def activation(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="none" if self.exact else "tanh")


class GatedLayers(FeedForward):
    """down(activation(gate(x)) * up(x)), without biases (Shazeer 2020, "GLU variants improve Transformer").

    Args:
        d_ff: inner width; None = 8/3 d_model rounded up to a multiple of 8, which matches GELU at 4 d_model in
            parameters.
    """

    cuts: ClassVar[Cuts] = {"gate_proj": "columns", "up_proj": "columns", "down_proj": "rows"}

    def __init__(self, d_model: int, *, d_ff: int | None = None) -> None:
        super().__init__()
        d_ff = -(-8 * d_model // 24) * 8 if d_ff is None else d_ff
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def cut(self, ranks: int) -> None:
        part_of(self.up_proj.out_features, ranks, "the feed-forward's inner width")

    @abstractmethod
    def activation(self, x: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return y


class SwiGLU(GatedLayers):
    """down(silu(gate(x)) * up(x)), as in Llama (Shazeer 2020)."""

    def activation(self, x: Tensor) -> Tensor:
        return F.silu(x)


class GEGLU(GatedLayers):
    """down(gelu(gate(x)) * up(x)), with the tanh approximation, as in Gemma (Shazeer 2020)."""

    def activation(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")
