"""The short causal convolution in front of a linear recurrence.

B batch, T length, D channels, W kernel width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import StateEntry


def extend_history(state: Tensor, x: Tensor, length: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Prepends the previous inputs, `state` (B, R, D), to x (B, T, D).

    Args:
        length: (B,) int64, number of real inputs at the start of each row of x; None = all.

    Returns:
        history (B, R + T, D) and the next state, the last R real inputs.
    """
    history = torch.cat((state, x), dim=1)  # (B, R + T, D)
    if length is None:
        return history, history[:, x.shape[1] :]
    last = length.unsqueeze(1) + torch.arange(state.shape[1], device=x.device)  # (B, R) places in the history
    return history, history.gather(1, last.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


class ShortConv(nn.Module):
    """Depthwise causal convolution over time (Fu et al. 2023, "H3"; Mamba, DeltaNet): output t is a weighted sum of
    inputs t - W + 1 .. t, channel by channel.

    The state, declared by `entry`, holds the last W - 1 inputs and is initially zero.

    Args:
        channels: number of channels D.
        width: kernel width W, at least 2.
        bias: whether each channel has a bias.
    """

    def __init__(self, channels: int, width: int = 4, *, bias: bool = True) -> None:
        super().__init__()
        if width < 2:
            raise ValueError(f"the width of a short convolution must be at least 2, got {width}")
        self.width = width
        self.conv = nn.Conv1d(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x: Tensor, state: Tensor, length: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolves x (B, T, D), whose rows start with `length` (B,) real inputs, None = all T: y (B, T, D) and the
        next state."""
        history, new_state = extend_history(state, x, length)  # (B, W - 1 + T, D), (B, W - 1, D)
        y: Tensor = self.conv(history.transpose(1, 2)).transpose(1, 2)  # (B, D, W - 1 + T) to (B, T, D)
        return y, new_state

    def step(self, x_t: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Decode step: maps x_t (B, D) and a state to y_t (B, D) and the next state."""
        window = torch.cat((state, x_t.unsqueeze(1)), dim=1)  # (B, W, D)
        y_t = (window.transpose(1, 2) * self.conv.weight.squeeze(1)).sum(dim=-1)  # (B, D)
        return y_t if self.conv.bias is None else y_t + self.conv.bias, window[:, 1:]

    @property
    def entry(self) -> StateEntry:
        """State entry `conv (B, W - 1, D)`."""
        return StateEntry("conv", (self.width - 1, self.conv.weight.shape[0]), kind="window")
