"""Parts of a model among which a training step's time is divided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from torch import nn

from seqlab.mixer import Mixer
from seqlab.nn.feed_forward import FeedForward
from seqlab.nn.norm import Norm
from seqlab.positions.base import PositionalEncoding

KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "mixer": (Mixer,),
    "feed-forward": (FeedForward,),
    "norm": (Norm, nn.LayerNorm),
    "embedding": (nn.Embedding, PositionalEncoding),
}
"""Module classes by kind; submodules of such a module belong to it."""
NAMES = {"embedding": "embedding", "head": "loss", "pooler": "loss"}
"""Kinds of modules of any class, by their name in a model."""


class Part(NamedTuple):
    """Attributes:
    kind: mixer, feed-forward, norm, embedding, loss (with the output layer), optimiser, data, logging, waiting or rest.
    name: class name of the module; empty = irrelevant for this kind.
    stack: stack of the model that contains it, e.g. `encoder`; empty = the only one.
    block: index of its block in the stack; None = outside the blocks.
    """

    kind: str
    name: str = ""
    stack: str = ""
    block: int | None = None

    def __str__(self) -> str:
        where = "" if self.block is None else f"block {self.block}"
        return " ".join(filter(None, (self.stack, where, self.kind, self.name)))


REST = Part("rest")


def parts_of(module: nn.Module, path: tuple[str, ...] = ()) -> Iterator[tuple[nn.Module, Part]]:
    """Modules of a model that are timed separately, in the model's order; the time of all others is the rest."""
    for key, child in module.named_children():
        kind = next((kind for kind, types in KINDS.items() if isinstance(child, types)), NAMES.get(key))
        if kind is None:
            yield from parts_of(child, (*path, key))
        else:
            block = next((int(word) for word in reversed(path) if word.isdecimal()), None)
            stack = " ".join(word for word in path if not (word.isdecimal() or word in ("stack", "blocks")))
            yield (
                child,
                Part(kind, type(child).__name__ if kind in ("mixer", "feed-forward", "norm") else "", stack, block),
            )


def among(parts: Iterable[Part]) -> str:
    """Description of parts of one kind and class, e.g. "the mixer GRU of blocks 0-1"."""
    parts = sorted(set(parts), key=lambda part: (part.stack, -1 if part.block is None else part.block))
    words = []
    for stack, of_stack in groupby((part for part in parts if part.block is not None), key=lambda part: part.stack):
        blocks = [part.block or 0 for part in of_stack]
        words.append(f"{stack} block{'s' if len(blocks) > 1 else ''} {_ranges(blocks)}".strip())
    what = f"{parts[0].kind} {parts[0].name}".strip()
    return f"the {what} of {' and '.join(words)}" if words else f"the {what}"


def _ranges(numbers: list[int]) -> str:
    """Formats sorted numbers as ranges: 0, 1, 2, 5 become "0-2, 5"."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
