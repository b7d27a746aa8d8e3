"""Base class of RNN, GRU and LSTM: fused kernels over time, and single cells in `step`.

B batch, T length, D d_model, L layers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.operation import operation
from seqlab.nn.padding import is_real
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.scan import Carry

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""`weight_ih` (G D, E), `weight_hh` (G D, D), `bias_ih` (G D,), `bias_hh` (G D,): a layer of G gates over E inputs."""


class FusedRecurrence(AlignedMixer):
    """PyTorch's recurrent layers, run by fused kernels over time and by single cells in `step`.

    A subclass names its state entries, each (B, L, D), and implements one step.

    Args:
        build: PyTorch's class of the layers (`cell`).
        num_layers: number of layers L stacked inside the mixer.
        dropout: dropout probability between the layers, in training.
        bidirectional: whether to add a backward pass; both have width d_model / 2 and are concatenated. Not causal.
        looped: whether to use a Python loop over `cell_step` instead of the fused kernels, with the same results, as a
            baseline for benchmarks.

    Raises:
        ValueError: dropout with a single layer, or bidirectional with an odd d_model or with looped.
    """

    state_names: tuple[str, ...]
    cell: nn.RNNBase

    def __init__(
        self,
        d_model: int,
        layer: int,
        build: Callable[..., nn.RNNBase],
        *,
        num_layers: int,
        dropout: float,
        bidirectional: bool,
        looped: bool,
    ) -> None:
        super().__init__(d_model, layer)
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if dropout and num_layers == 1:
            raise ValueError(
                f"dropout acts between layers: with dropout {dropout}, num_layers must be at least 2, got 1"
            )
        if bidirectional and d_model % 2:
            raise ValueError(f"a bidirectional layer needs an even d_model, half for each direction, got {d_model}")
        if bidirectional and looped:
            raise ValueError("looped runs in one direction only; set looped or bidirectional, not both")
        width = d_model // 2 if bidirectional else d_model
        self.causal = not bidirectional
        self.looped = looped
        self.cell = build(d_model, width, num_layers, dropout=dropout, bidirectional=bidirectional, batch_first=True)

    @abstractmethod
    def cell_step(self, x_t: Tensor, carry: Carry, weights: Weights) -> Carry:
        """One step of one layer: its state entries (B, D) after x_t (B, D). The first entry is the output."""

    def flops(self, new: int, seen: int) -> int:
        return 0

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        if state:
            self.check_causal()
        if _autocast_on_cpu(x):
            with torch.autocast("cpu", enabled=False):
                return self.run(x.to(self._any_weight().dtype), state, length)
        # (L, B, D), PyTorch's layout.
        entries = tuple(state[name].transpose(0, 1) for name in self.state_names) if self.causal else ()
        y, last = self.over_time(x, entries, length)  # y (B, T, D)
        if not self.causal:
            return y, {}
        if length is not None:
            empty = (length == 0).unsqueeze(-1)  # (B, 1)
            last = tuple(torch.where(empty, old, new) for old, new in zip(entries, last, strict=True))
        return y, self._to_state(last)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        self.check_causal()
        if _autocast_on_cpu(x_t):
            with torch.autocast("cpu", enabled=False):
                return self.step(x_t.to(self._any_weight().dtype), state)
        carries: list[Carry] = []
        for k, (weights,) in enumerate(self.weights()):
            carry = tuple(state[name][:, k] for name in self.state_names)  # (B, D) each
            carries.append(self.cell_step(self._dropped(x_t, k), carry, weights))
            x_t = carries[-1][0]
        return x_t, self._to_state(tuple(torch.stack(entry) for entry in zip(*carries, strict=True)))

    def state_spec(self) -> StateSpec:
        dims = (self.cell.num_layers, self.d_model)
        return tuple(StateEntry(name, dims) for name in self.state_names) if self.causal else ()

    @operation
    def over_time(self, x: Tensor, entries: Carry, length: Tensor | None) -> tuple[Tensor, Carry]:
        """Output y (B, T, D) for x, whose rows have `length` (B,) real inputs, and the last entries (L, B, D). Empty
        `entries` means zeros."""
        return (self._looped if self.looped else self._fused)(x, entries, length)

    def _fused(self, x: Tensor, entries: Carry, length: Tensor | None) -> tuple[Tensor, Carry]:
        start = tuple(entry.contiguous() for entry in entries)
        start_of_cell = None if not start else start[0] if len(start) == 1 else start
        if length is None:
            y, last = self.cell(x, start_of_cell)  # y (B, T, D)
        else:
            # With a packed sequence each row stops at its length, so padding is the identity. cuDNN takes lengths from
            # the host, which waits for them.
            packed = pack_padded_sequence(x, length.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            packed_y, last = self.cell(packed, start_of_cell)
            assert isinstance(packed_y, PackedSequence)
            y, _ = pad_packed_sequence(packed_y, batch_first=True, total_length=x.shape[1])  # y (B, T, D)
        return y, (last,) if isinstance(last, Tensor) else last

    def _looped(self, x: Tensor, entries: Carry, length: Tensor | None) -> tuple[Tensor, Carry]:
        real = None if length is None else is_real(x, length).unbind(dim=1)
        layers: list[Carry] = []
        for k, (weights,) in enumerate(self.weights()):
            carry, outputs = tuple(entry[k] for entry in entries), []
            for t, x_t in enumerate(self._dropped(x, k).unbind(dim=1)):
                new = self.cell_step(x_t, carry, weights)
                outputs.append(new[0])
                if real is not None:
                    new = tuple(torch.where(real[t], n, old) for n, old in zip(new, carry, strict=True))
                carry = new
            layers.append(carry)
            x = torch.stack(outputs, dim=1)  # (B, T, D)
        return x, tuple(torch.stack(entry) for entry in zip(*layers, strict=True))

    def _dropped(self, x: Tensor, k: int) -> Tensor:
        """Input of layer k after dropout."""
        return F.dropout(x, self.cell.dropout, self.training) if k else x

    def weights(self) -> list[tuple[Weights, ...]]:
        """Weights of each layer, for one or two directions."""
        directions = 1 if self.causal else 2
        weights = [(w_ih, w_hh, b_ih, b_hh) for w_ih, w_hh, b_ih, b_hh in self.cell.all_weights]
        return [tuple(weights[k : k + directions]) for k in range(0, len(weights), directions)]

    def _any_weight(self) -> Tensor:
        return self.weights()[0][0][0]

    def _to_state(self, last: Carry) -> State:
        dtype = self._any_weight().dtype
        # (L, B, D) to (B, L, D) each
        return {n: entry.transpose(0, 1).to(dtype) for n, entry in zip(self.state_names, last, strict=True)}


def _autocast_on_cpu(x: Tensor) -> bool:
    """True under CPU autocast, which requests a bfloat16 LSTM from oneDNN that few CPUs support."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")
