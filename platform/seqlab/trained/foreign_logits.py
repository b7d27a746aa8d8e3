"""The logits that Hugging Face `transformers` computes of a checkpoint folder, to compare ours with."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

LIMIT = 1e-4
"""Limit of a difference's RMS over the logits': a hundred times float32's rounding, a thousandth of another model's."""
LENGTH = 128


class ForeignLogits(NamedTuple):
    """Random tokens (1, T), and logits (1, T, V) of them."""

    folder: Path
    tokens: Tensor
    logits: Tensor

    @classmethod
    def of(cls, folder: Path, *, vocab_size: int, seq_len: int) -> Self | None:
        """The logits of a checkpoint folder; None where transformers is not installed.

        Raises:
            ValueError: it does not load the folder.
        """
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError:
            return None
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(vocab_size, (1, min(seq_len, LENGTH)), generator=generator)
        try:
            load = transformers.AutoModelForCausalLM.from_pretrained
            model = load(folder, local_files_only=True, use_safetensors=True)
            with torch.inference_mode():
                logits = model.float().eval()(tokens).logits
        except Exception as error:
            said = str(error).strip().splitlines()[0]
            raise ValueError(f"transformers, with which logits are compared, does not run {folder}: {said}") from error
        return cls(folder, tokens, logits)

    def check(self, model: nn.Module) -> float:
        """Error of the model's logits against these: the RMS of the difference over theirs.

        Raises:
            ValueError: they differ by more than rounding.
        """
        with torch.inference_mode():
            difference = model(self.tokens)[0] - self.logits
        found: float = (difference.square().mean() / self.logits.square().mean()).sqrt().item()
        if not found < LIMIT:
            raise ValueError(
                f"the logits of {self.folder} differ from those that transformers computes by {found:.1e} of their "
                f"RMS; accepted: below {LIMIT:.0e}"
            )
        return found
