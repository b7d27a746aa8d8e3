"""The residual block: a mixer over time, then a feed-forward over channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from seqlab.mixer import Mixer, State
from seqlab.nn.feed_forward import GELU, FeedForward
from seqlab.nn.norm import LayerNorm, Norm


class Block(nn.Module):
    """x + mixer(norm(x)), then x + ffn(norm(x)) (pre-norm, Xiong et al. 2020); or norm(x + mixer(x)) and
    norm(x + ffn(x)) (post-norm, Vaswani et al. 2017).

    Args:
        norm: called with d_model, once for each of `mixer_norm` and `ffn_norm`.
        norm_place: "pre" or "post".
        ffn: called with d_model.
        dropout: on both residual branches, in training.
    """

    def __init__(
        self,
        d_model: int,
        mixer: Mixer,
        *,
        norm: Callable[[int], Norm] = LayerNorm,
        norm_place: Literal["pre", "post"] = "pre",
        ffn: Callable[[int], FeedForward] = GELU,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm_place = norm_place
        self.mixer_norm = norm(d_model)
        self.mixer = mixer
        self.ffn_norm = norm(d_model)
        self.ffn = ffn(d_model)
        self.dropout = nn.Dropout(dropout)
        self._norm = norm

    def final_norm(self) -> nn.Module:
        """What must follow the last block: a norm for pre-norm, nothing for post-norm."""
        return self._norm(self.mixer.d_model) if self.norm_place == "pre" else nn.Identity()

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) to (B, T, D), and the mixer's new state."""
        mixed, new_state = self.mixer(self._before(self.mixer_norm, x), state, pad_mask=pad_mask)
        return self._finish(x, mixed), new_state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One position: x_t (B, D)."""
        mixed, new_state = self.mixer.step(self._before(self.mixer_norm, x_t), state)
        return self._finish(x_t, mixed), new_state

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = self._after(self.mixer_norm, x + self.dropout(mixed))
        return self._after(self.ffn_norm, x + self.dropout(self.ffn(self._before(self.ffn_norm, x))))

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = norm(x) if self.norm_place == "pre" else x
        return y

    def _after(self, norm: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = norm(x) if self.norm_place == "post" else x
        return y
