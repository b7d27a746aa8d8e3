"""Checkpoint folders in the layout of Hugging Face `transformers`, as a `DecoderLM` and its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.gpt2 import read_gpt2
from seqlab.models.pretrained.llama import read_llama, read_mistral, read_qwen2, read_qwen3
from seqlab.models.pretrained.read import Pretrained
from seqlab.models.pretrained.special_ids import SpecialIds, read_special_ids
from seqlab.models.pretrained.weights import ForeignWeights

__all__ = ["Pretrained", "SpecialIds", "read_pretrained", "read_special_ids"]

READERS: dict[str, Callable[[ForeignConfig, ForeignWeights], Pretrained]] = {
    "gpt2": read_gpt2,
    "llama": read_llama,
    "mistral": read_mistral,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
}
LACKS = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text"), "Gemma has feed-forwards that GELU gates"),
    "gpt_neox": "GPT-NeoX has two parallel branches, each with a norm of its own",
}
"""Families that are asked for and cannot be read, and what they have that no block here has."""


def read_pretrained(folder: Path) -> Pretrained:
    """Reads `config.json` and `model.safetensors` (or its shards and their index).

    Raises:
        ValueError: a file is missing or broken, the model is not one that DecoderLM computes, or a field or a tensor
            is none that is known.
    """
    config = ForeignConfig.read(folder)
    kind = config.text("model_type")
    if kind not in READERS:
        why = f": {LACKS[kind]}, which no block here has" if kind in LACKS else ""
        raise ValueError(f"{config.place} describes a {kind!r} model{why}; accepted: {', '.join(READERS)}")
    weights = ForeignWeights(folder)
    pretrained = READERS[kind](config, weights)
    config.finish()
    weights.finish()
    return pretrained
