"""Adapter from a PyTorch model to the decoding loop.

B batch, S source length, T tokens, K positions scored, D d_model, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.mixer import State


class TorchDecoder:
    """Runs a model on its own device, in evaluation mode.

    Args:
        model: the model; it is set to evaluation mode.
        state: initial state from `EncoderDecoder.begin`, one row per prompt; None = the model's default.
    """

    def __init__(self, model: Any, state: State | None = None) -> None:
        self.model = model.eval()
        self.state = state
        self.vocab_size: int = self.model.vocab_size
        self.max_seq_len: int | None = self.model.max_seq_len
        self.device = next(model.parameters()).device

    @classmethod
    @torch.inference_mode()
    def begin(cls, model: Any, source: NDArray[np.int64], source_mask: NDArray[np.bool_]) -> TorchDecoder:
        """Encodes source (B, S) with source_mask (B, S) and returns a decoder for a model such as `EncoderDecoder`."""
        device = next(model.parameters()).device
        read = (torch.from_numpy(some).to(device) for some in (source, source_mask))
        return cls(model, model.eval().begin(*read))

    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], State]:
        return self._read(tokens, pad_mask, -1)

    def logits(
        self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], scored: NDArray[np.int64]
    ) -> NDArray[np.floating]:
        """Logits (B, K, V) at the positions scored (K,) of tokens (B, T), padded where pad_mask (B, T) is False."""
        return self._read(tokens, pad_mask, torch.from_numpy(scored).to(self.device))[0]

    @torch.inference_mode()
    def _read(
        self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_], scored: int | torch.Tensor
    ) -> tuple[NDArray[np.floating], State]:
        mask = None if pad_mask.all() else torch.from_numpy(pad_mask).to(self.device)
        read = partial(self.model, torch.from_numpy(tokens).to(self.device), self.state, pad_mask=mask)
        if hasattr(self.model, "output"):
            x, state = read(features=True)  # x (B, T, D)
            return _to_numpy(self.model.output(x[:, scored])), state
        logits, state = read()
        return _to_numpy(logits[:, scored]), state

    @property
    def num_ahead(self) -> int:
        heads = getattr(self.model, "ahead", None)
        return 0 if heads is None else len(heads.layers)

    @torch.inference_mode()
    def guess(
        self, tokens: NDArray[np.int64], state: State | None, first: int
    ) -> tuple[NDArray[np.floating], NDArray[np.int64], State]:
        """Reads tokens and guesses further ones, as `seqlab.decoding.speculate.Guesser` says."""
        x, new_state = self.model(torch.from_numpy(tokens).to(self.device), state, features=True)  # x (1, T, D)
        x = x[0, first:]  # (T - first, D)
        guesses = self.model.output(self.model.ahead(x)).argmax(dim=-1)  # (T - first, N)
        return _to_numpy(self.model.output(x)), guesses.cpu().numpy(), new_state

    @torch.inference_mode()
    def step(self, tokens: NDArray[np.int64], state: State) -> tuple[NDArray[np.floating], State]:
        logits, new_state = self.model.step(torch.from_numpy(tokens).to(self.device), state)
        return _to_numpy(logits), new_state

    def select(self, state: State, rows: NDArray[np.int64]) -> State:
        chosen = torch.from_numpy(rows).to(self.device)
        return {name: entry.index_select(0, chosen) for name, entry in state.items()}


def _to_numpy(logits: torch.Tensor) -> NDArray[np.floating]:
    if logits.dtype == torch.bfloat16:  # NumPy has no bfloat16.
        logits = logits.float()
    array: NDArray[np.floating] = logits.cpu().numpy()
    return array
