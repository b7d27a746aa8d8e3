"""Reference logits of Hugging Face `transformers` for a checkpoint folder."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

LIMIT = 1e-4
"""Relative RMS tolerance: a hundred times float32 rounding, a thousandth of the difference to another model."""
LENGTH = 128


class ForeignLogits(NamedTuple):
    """Random tokens (1, T), and their logits (1, T, V)."""

    folder: Path
    tokens: Tensor
    logits: Tensor

    @classmethod
    def of(cls, folder: Path, *, vocab_size: int, seq_len: int) -> Self | None:
        """Computes the logits of a checkpoint folder; None if transformers is not installed.

        Raises:
            ValueError: transformers cannot load or run the folder.
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
            # Not converted afterwards: Gemma rounds a factor to the dtype that it is loaded in.
            model = load(folder, local_files_only=True, use_safetensors=True, dtype=torch.float32)
            with torch.inference_mode():
                logits = model.eval()(tokens).logits
        except Exception as error:
            said = str(error).strip().splitlines()[0]
            raise ValueError(
                f"transformers, which computes the reference logits, cannot run {folder}: {said}"
            ) from error
        return cls(folder, tokens, logits)

    def check(self, model: nn.Module) -> float:
        """Relative error of a model's logits: the RMS of the difference divided by the RMS of these logits.

        Raises:
            ValueError: the error is not below `LIMIT`.
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
