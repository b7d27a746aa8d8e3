"""A model's kind, which every other part asks instead of its class."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Kind(NamedTuple):
    """Input of a model, how it is embedded, and the labels.

    Attributes:
        reads: "prompts" to continue, "sources" to translate, or whole "texts". A model of prompts or sources decodes.
        embedded_by: name of the layer that embeds the source or the text.
        labels: whether a text gets one label or each of its tokens has its own; None = no labels.
        once: names of the layers that are applied to a single vector per sequence.
    """

    reads: Literal["prompts", "sources", "texts"]
    embedded_by: str
    labels: Literal["text", "token"] | None = None
    once: tuple[str, ...] = ()

    @property
    def decodes(self) -> bool:
        """True for an autoregressive model, which has a `step`."""
        return self.reads != "texts"


def kind_of(model: object) -> Kind | None:
    """Kind of a model; None for a module that declares none."""
    kind = getattr(model, "kind", None)
    return kind if isinstance(kind, Kind) else None
