"""Ablation of attention heads, to measure what a model loses without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqlab.attention.softmax import Attention


class Head(NamedTuple):
    """One attention head.

    Attributes:
        attention: name of its `Attention` module in the model.
        place: index of the head in that module.
    """

    attention: str
    place: int


def heads_of(model: nn.Module) -> list[Head]:
    """Heads of each `Attention` in a model."""
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, Attention)]
    return [Head(name, place) for name, part in layers for place in range(part.num_heads)]


@contextmanager
def left_out(model: nn.Module, heads: Sequence[Head]) -> Iterator[None]:
    """Context that zeroes the outputs of heads (Michel et al. 2019, "Are Sixteen Heads Really Better than One?")."""
    handles = []
    for name, place in heads:
        attention: Any = model.get_submodule(name)
        own = slice(place * attention.head_dim, (place + 1) * attention.head_dim)

        def silence(_: nn.Module, args: tuple[Tensor, ...], own: slice = own) -> tuple[Tensor, ...]:
            joined = args[0].clone()  # (B, T, H K)
            joined[..., own] = 0
            return (joined,)

        handles.append(attention.out_proj.register_forward_pre_hook(silence))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
