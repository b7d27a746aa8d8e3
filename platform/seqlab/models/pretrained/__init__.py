"""Checkpoint folders in the layout of Hugging Face `transformers`, as a `DecoderLM` and its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqlab.models.pretrained.config import ForeignConfig
from seqlab.models.pretrained.gemma import read_gemma, read_gemma2, read_gemma3
from seqlab.models.pretrained.gpt2 import read_gpt2
from seqlab.models.pretrained.gpt_neox import read_gpt_neox
from seqlab.models.pretrained.llama import (
    read_llama,
    read_mistral,
    read_olmo2,
    read_phi3,
    read_qwen2,
    read_qwen3,
    read_smollm3,
)
from seqlab.models.pretrained.mamba import read_mamba, read_mamba2
from seqlab.models.pretrained.qwen3_moe import read_qwen3_moe
from seqlab.models.pretrained.read import Pretrained
from seqlab.models.pretrained.special_ids import SpecialIds, read_special_ids
from seqlab.models.pretrained.weights import ForeignWeights

__all__ = ["Pretrained", "SpecialIds", "read_pretrained", "read_special_ids"]

READERS: dict[str, Callable[[ForeignConfig, ForeignWeights], Pretrained]] = {
    "gemma": read_gemma,
    "gemma2": read_gemma2,
    "gemma3_text": read_gemma3,
    "gpt2": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "llama": read_llama,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "mistral": read_mistral,
    "olmo2": read_olmo2,
    "phi3": read_phi3,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    "qwen3_moe": read_qwen3_moe,
    "smollm3": read_smollm3,
}
LACKS = {"gemma3": "Gemma 3 with images has an image encoder"}
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
