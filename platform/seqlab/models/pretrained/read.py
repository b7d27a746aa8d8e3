"""The result of reading a checkpoint folder."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Pretrained(NamedTuple):
    """A checkpoint folder, read.

    Attributes:
        vocab_size: tokens V.
        seq_len: how far its positions were trained.
        model: class path and arguments of the `DecoderLM`, as a seqlab config has them.
        weights: the `DecoderLM`'s `state_dict`.
    """

    vocab_size: int
    seq_len: int
    model: dict[str, Any]
    weights: dict[str, Tensor]


def block(path: str, **init_args: object) -> dict[str, Any]:
    """A class of seqlab and its arguments, as a config has them."""
    return {"class_path": f"seqlab.{path}", "init_args": init_args}
