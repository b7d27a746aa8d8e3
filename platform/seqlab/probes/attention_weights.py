"""Attention weights of a model while it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from seqlab.mixer import Mixer


@contextmanager
def recorded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Context that records the attention weights (B, H, T, S) of each `forward` call of an attention mixer, keyed by
    the mixer's name in the model."""
    found: dict[str, Tensor] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(mixer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = {key: value for key, value in kwargs.items() if value is not None}
            found[name] = mixer.attention_weights(*args, **given).detach()

        return hook

    handles = [
        mixer.register_forward_pre_hook(record(name), with_kwargs=True)
        for name, mixer in model.named_modules()
        if isinstance(mixer, Mixer) and hasattr(mixer, "attention_weights")
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
