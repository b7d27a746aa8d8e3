"""Fixed windows: each output is a function of a fixed number of last inputs.

B batch, T length, D d_model, R reach.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import POSITION, State, StateEntry, StateSpec
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.short_conv import extend_history


class Window(AlignedMixer):
    """Sees an input and the `reach` inputs before it, with zeros before the first. The state is `inputs (B, R, D)`.

    Args:
        reach: number R of previous inputs, at least 1 (ValueError).
    """

    def __init__(self, d_model: int, layer: int, *, reach: int) -> None:
        super().__init__(d_model, layer)
        if reach < 1:
            raise ValueError(f"a window must hold at least 2 inputs, got {reach + 1}")
        self.reach = reach

    @abstractmethod
    def mix(self, history: Tensor) -> Tensor:
        """y (B, T, D) for the last T inputs of history (B, R + T, D)."""

    def flops(self, new: int, seen: int) -> int:
        return 0

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        history, inputs = extend_history(state["inputs"], x, length)  # (B, R + T, D), (B, R, D)
        return self.mix(history), {"inputs": inputs}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.run(x_t.unsqueeze(1), state, None)  # y (B, 1, D)
        return y.squeeze(1), new_state

    def state_spec(self) -> StateSpec:
        return (StateEntry("inputs", (self.reach, self.d_model), kind="window"),)


class NGramWindow(Window):
    """U tanh(d + H (x_{t-n+1}, ..., x_t)) + b of the concatenated last n inputs (Bengio et al. 2003, equation 1 without
    its direct connections W). Before the first input there are zeros.

    The state is `inputs (B, window - 1, D)`.

    Args:
        window: number n of inputs including the current one, at least 2 (ValueError).
        d_hidden: width of the tanh; None = d_model.
    """

    def __init__(self, d_model: int, layer: int = 0, *, window: int = 4, d_hidden: int | None = None) -> None:
        super().__init__(d_model, layer, reach=window - 1)
        d_hidden = d_model if d_hidden is None else d_hidden
        self.in_proj = nn.Linear(window * d_model, d_hidden)
        self.out_proj = nn.Linear(d_hidden, d_model)

    def mix(self, history: Tensor) -> Tensor:
        length = history.shape[1] - self.reach  # T
        windows = torch.cat([history[:, k : k + length] for k in range(self.reach + 1)], dim=-1)  # (B, T, (R + 1) D)
        y: Tensor = self.out_proj(torch.tanh(self.in_proj(windows)))  # (B, T, D)
        return y


class CBOW(Window):
    """out_proj of the mean of the last inputs: the continuous bag of words (Mikolov et al. 2013, section 3.1), here of
    the past alone. Where there are fewer inputs than the window holds, it is their mean.

    The state is `position (B,)`, the number of inputs read so far, and `inputs (B, window - 1, D)`.

    Args:
        window: number of averaged inputs including the current one, at least 2 (ValueError).
    """

    def __init__(self, d_model: int, layer: int = 0, *, window: int = 4) -> None:
        super().__init__(d_model, layer, reach=window - 1)
        self.out_proj = nn.Linear(d_model, d_model)

    def mix(self, history: Tensor) -> Tensor:
        # (B, D, R + T) to (B, T, D)
        return F.avg_pool1d(history.transpose(1, 2), self.reach + 1, stride=1).transpose(1, 2)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        mean, new_state = super().run(x, state, length)
        start = state["position"]
        # (B, T)
        held = (start.unsqueeze(1) + torch.arange(1, x.shape[1] + 1, device=x.device)).clamp(max=self.reach + 1)
        y = self.out_proj(mean * ((self.reach + 1) / held.to(mean.dtype)).unsqueeze(-1))  # (B, T, D)
        return y, {"position": start + (x.shape[1] if length is None else length), **new_state}

    def state_spec(self) -> StateSpec:
        return POSITION, *super().state_spec()


class CausalConv(Window):
    """out_proj(relu(b + sum_k W_k x_{t - d k})), k = 0 .. width - 1: the dilated causal convolution of a TCN (Bai et
    al. 2018, section 3.2). In layer i the dilation d is dilation_growth^i.

    The state is `inputs (B, (width - 1) d, D)`.

    Args:
        width: number of kernel taps, at least 2 (ValueError).
        dilation_growth: factor on the dilation from layer to layer, at least 1 (ValueError); 2 in a TCN or WaveNet.
    """

    def __init__(self, d_model: int, layer: int = 0, *, width: int = 4, dilation_growth: int = 1) -> None:
        if dilation_growth < 1:
            raise ValueError(f"dilation_growth must be at least 1, got {dilation_growth}")
        dilation = dilation_growth**layer
        super().__init__(d_model, layer, reach=(width - 1) * dilation)
        self.conv = nn.Conv1d(d_model, d_model, width, dilation=dilation)
        self.out_proj = nn.Linear(d_model, d_model)

    def mix(self, history: Tensor) -> Tensor:
        # (B, D, R + T) to (B, T, D)
        y: Tensor = self.out_proj(torch.relu(self.conv(history.transpose(1, 2)).transpose(1, 2)))
        return y
