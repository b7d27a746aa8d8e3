"""Luong attention: a recurrent decoder that attends to the memory after each step.

B batch, T query length, S memory length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.attention.alignment import AlignmentScore, General, PredictedWindow
from seqlab.attention.memory import MemoryMixer, masked_softmax
from seqlab.mixer import Mixer, State, StateEntry, StateSpec
from seqlab.nn.numerics import without_autocast
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.recurrence import LSTM


class MultiplicativeAttention(MemoryMixer):
    """Recurrence whose outputs h_t attend to the memory (Luong et al. 2015, "Effective approaches to attention-based
    neural machine translation", section 3).

    a_t = softmax(score(h_t, h_s)), c_t = sum_s a_ts h_s, and the output is the attentional vector tanh(W [c_t; h_t])
    (equations 5 to 7). None of this feeds back into the recurrence, so it uses its fused kernel and all positions
    attend at once. With `input_feeding` (section 3.3) the recurrence reads x_t concatenated with the previous
    attentional vector and projected to D, so the steps run sequentially.

    The state is `memory_k (B, S, D)`, the memory as prepared by `score`; `memory_v (B, S, D)`, the memory itself;
    `memory_mask (B, S)`; the recurrence's entries; and with input feeding `fed (B, D)`, the last attentional vector.

    Args:
        recurrence: factory called with d_model and the layer's index: LSTM, GRU or any causal mixer with a fixed-size
            state.
        score: factory called with d_model: General, Dot, or Additive (the paper's "concat").
        window: half-width D of predictive local attention ("local-p", equations 9 and 10), which weights the positions
            around a predicted centre by a Gaussian with standard deviation D / 2. None = global attention.
        input_feeding: whether a step also reads the previous attentional vector.

    Raises:
        ValueError: the window is below 1, or the mixer is not a recurrence.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        recurrence: Callable[[int, int], Mixer] = LSTM,
        score: Callable[[int], AlignmentScore] = General,
        window: int | None = None,
        input_feeding: bool = False,
    ) -> None:
        super().__init__(d_model, layer)
        self.recurrence = recurrence(d_model, layer)
        if not _is_recurrent(self.recurrence):
            raise ValueError(
                "MultiplicativeAttention needs a causal recurrence with a state of fixed size and no encoder's memory, "
                f"such as LSTM or GRU, got {type(self.recurrence).__name__}"
            )
        self.score = score(d_model)
        self.window = None if window is None else PredictedWindow(d_model, window)
        self.in_proj = nn.Linear(2 * d_model, d_model, bias=False) if input_feeding else None
        self.out_proj = nn.Linear(2 * d_model, d_model, bias=False)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.score.read(memory), memory

    def carried(self) -> StateSpec:
        recurrent = self.recurrence.state_spec()
        return recurrent if self.in_proj is None else (*recurrent, StateEntry("fed", (self.d_model,)))

    def flops(self, new: int, seen: int) -> int:
        contexts = 2 * new * seen * self.d_model
        return contexts + self.score.flops(new, seen, self.d_model)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """Processes all positions at once: x (B, T, D) to (B, T, D), and the new state.

        Raises:
            ValueError: the state is missing or does not match this mixer and batch.
        """
        state = self.begin(x, state)
        h, fed, carried = self._unroll(x, state, pad_mask)  # h (B, T, D)
        return self._attentional(h, state) if fed is None else fed, state | carried

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        state = self.begin(x_t, state)
        with without_autocast(x_t):
            _, y, carried = self._next(x_t.to(self.out_proj.weight.dtype), self._carry(state), state)  # y (B, D)
        return y, state | carried

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """Attention weights (B, 1, T, S) of x (B, T, D) over the memory. Rows sum to 1, or to less with a window."""
        state = self.begin(x, state)
        h, _, _ = self._unroll(x, state, pad_mask)  # h (B, T, D)
        return self._weights(h, state).unsqueeze(1)  # (B, 1, T, S)

    def _unroll(self, x: Tensor, state: State, pad_mask: Tensor | None) -> tuple[Tensor, Tensor | None, State]:
        """h (B, T, D), the attentional vectors (B, T, D) with input feeding or else None, and the carried entries."""
        start = self._carry(state)
        if self.in_proj is None:
            h, carried = self.recurrence(x, start, pad_mask=pad_mask)  # h (B, T, D)
            return h, None, carried
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask

        def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
            x_t, is_real = now
            before = dict(zip(start, carry, strict=True))
            h, fed, after = self._next(x_t, before, state)  # h and fed (B, D)
            kept = [
                torch.where(is_real.view(-1, *[1] * (entry.dim() - 1)), after[name], entry)
                for name, entry in before.items()
            ]
            return tuple(kept), torch.cat((h, fed), dim=-1)

        with without_autocast(x):
            inputs = (x.to(self.out_proj.weight.dtype), real)
            outputs, last = scan_over_time(step, tuple(start.values()), inputs)  # outputs (B, T, 2 D)
        h, fed = outputs.chunk(2, dim=-1)  # (B, T, D) each
        return h, fed, dict(zip(start, last, strict=True))

    def _next(self, x_t: Tensor, carried: State, state: State) -> tuple[Tensor, Tensor, State]:
        """One step: h_t and the attentional vector, (B, D) each, and the new carried entries."""
        if self.in_proj is not None:
            *recurrent, _ = carried
            x_t = self.in_proj(torch.cat((x_t, carried["fed"]), dim=-1))  # (B, 2 D) to (B, D)
            carried = {name: carried[name] for name in recurrent}
        h, carried = self.recurrence.step(x_t, carried)  # h (B, D)
        attentional = self._attentional(h.unsqueeze(1), state).squeeze(1)  # (B, D)
        return h, attentional, carried if self.in_proj is None else carried | {"fed": attentional}

    def _carry(self, state: State) -> State:
        return {entry.name: state[entry.name] for entry in self.carried()}

    def _attentional(self, h: Tensor, state: State) -> Tensor:
        """Attentional vectors tanh(W [c; h]) (equation 5) for h (B, T, D)."""
        context = self._weights(h, state) @ state["memory_v"].to(h.dtype)  # (B, T, D)
        return torch.tanh(self.out_proj(torch.cat((context, h), dim=-1)))  # (B, T, 2 D) to (B, T, D)

    def _weights(self, h: Tensor, state: State) -> Tensor:
        """Attention weights (B, T, S) for h (B, T, D)."""
        mask = state["memory_mask"]  # (B, S)
        scores = self.score(h, state["memory_k"].to(h.dtype))  # (B, T, S)
        if self.window is None:
            return masked_softmax(scores, mask.unsqueeze(1))
        near, factor = self.window(h, mask)  # (B, T, S) each
        weights: Tensor = masked_softmax(scores, near) * factor
        return weights


def _is_recurrent(mixer: Mixer) -> bool:
    return mixer.causal and not any(isinstance(dim, str) for entry in mixer.state_spec() for dim in entry.dims)
