"""What RNN, GRU and LSTM share: a fused cell over time, and padding as the identity.

B batch, T length, D d_model.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqlab.mixer import Mixer, State
from seqlab.nn.onnx_mode import emitting
from seqlab.nn.padding import leading_pads, rotate_rows
from seqlab.recurrence.onnx_cell import forward_onnx


class FusedRecurrence(Mixer):
    """One recurrent layer of width d_model, run by PyTorch's fused kernel over time and by its cell in `step`.

    A subclass names its state entries and gives the fused layer (`cell`) and the function of one step.
    """

    state_names: tuple[str, ...]
    cell: nn.RNNBase

    @abstractmethod
    def cell_step(self, x_t: Tensor, state: State) -> State:
        """The state after x_t (B, D): the equations of one step. Entry `h` is the output."""

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        pad_mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        state = self.init_state(x.shape[0]) if state is None else state
        if emitting():
            entries = tuple(state[name] for name in self.state_names)
            y, new_entries = forward_onnx(self.cell.mode, self._weights(), x, entries, pad_mask)
            return y, dict(zip(self.state_names, new_entries, strict=True))
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # Autocast asks oneDNN for a bfloat16 LSTM, which it has on few CPUs.
            dtype = self._weights()[0].dtype
            with torch.autocast("cpu", enabled=False):
                return self._run(x.to(dtype), {name: entry.to(dtype) for name, entry in state.items()}, pad_mask)
        return self._run(x, state, pad_mask)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        new_state = self.cell_step(x_t, state)
        return new_state["h"], new_state

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        weight = self._weights()[0]
        return {name: weight.new_zeros(batch_size, self.d_model) for name in self.state_names}

    def state_size(self, seq_len: int) -> int:
        return len(self.state_names) * self.d_model

    def _run(self, x: Tensor, state: State, pad_mask: Tensor | None) -> tuple[Tensor, State]:
        if pad_mask is None:
            y, last = self.cell(x, self._to_cell(state))
            return y, self._from_cell(last)
        # Rows begin with their real tokens, so that the cell ends each at its length: a pad is the identity.
        lead, length = leading_pads(pad_mask), pad_mask.sum(dim=1)
        aligned = rotate_rows(x, lead)
        packed = pack_padded_sequence(aligned, length.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        packed_y, last = self.cell(packed, self._to_cell(state))
        assert isinstance(packed_y, PackedSequence)
        y, _ = pad_packed_sequence(packed_y, batch_first=True, total_length=x.shape[1])
        y = rotate_rows(y, -lead)
        empty = (length == 0).unsqueeze(-1)
        ended = {name: torch.where(empty, state[name], new) for name, new in self._from_cell(last).items()}
        return y, ended

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight_ih, weight_hh, bias_ih, bias_hh = self.cell.all_weights[0]
        return weight_ih, weight_hh, bias_ih, bias_hh

    def _to_cell(self, state: State) -> Tensor | tuple[Tensor, ...]:
        """(B, D) entries as the fused layer takes them: (1, B, D), a pair for the LSTM."""
        entries = tuple(state[name].unsqueeze(0) for name in self.state_names)
        return entries[0] if len(entries) == 1 else entries

    def _from_cell(self, last: Tensor | tuple[Tensor, ...]) -> State:
        entries = (last,) if isinstance(last, Tensor) else last
        return {name: entry.squeeze(0) for name, entry in zip(self.state_names, entries, strict=True)}
