"""A PyTorch decoder language model, as the decoding loop sees it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.mixer import State
from seqlab.models import DecoderLM


class TorchDecoder:
    """Runs a `DecoderLM` on its own device, in evaluation mode.

    Args:
        model: is set to evaluation mode.
    """

    def __init__(self, model: DecoderLM) -> None:
        self.model = model.eval()
        self.vocab_size = model.vocab_size
        self.max_seq_len = model.max_seq_len
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def prefill(self, tokens: NDArray[np.int64], pad_mask: NDArray[np.bool_]) -> tuple[NDArray[np.floating], State]:
        mask = None if pad_mask.all() else torch.from_numpy(pad_mask).to(self.device)
        logits, state = self.model(torch.from_numpy(tokens).to(self.device), pad_mask=mask)
        return _to_numpy(logits[:, -1]), state

    @torch.inference_mode()
    def step(self, tokens: NDArray[np.int64], state: State) -> tuple[NDArray[np.floating], State]:
        logits, new_state = self.model.step(torch.from_numpy(tokens).to(self.device), state)
        return _to_numpy(logits), new_state


def _to_numpy(logits: torch.Tensor) -> NDArray[np.floating]:
    if logits.dtype == torch.bfloat16:  # NumPy has none.
        logits = logits.float()
    array: NDArray[np.floating] = logits.cpu().numpy()
    return array
