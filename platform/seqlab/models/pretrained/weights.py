"""The tensors of a checkpoint folder, taken one by one; what was not taken is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seqlab.models.pretrained.config import read_object

BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
"""Endings of what older versions stored and recompute: masks and rotary frequencies."""


class ForeignWeights:
    """The tensors of `model.safetensors`, or of the shards that its index names, by their names.

    Raises:
        ValueError: a file is missing, or is no safetensors file.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        self._folder = folder
        self._untaken: dict[str, Tensor] = {}
        for file in _files(folder):
            if not file.is_file():
                raise ValueError(f"{folder} lacks {file.name}; save the checkpoint as safetensors")
            try:
                self._untaken |= load_file(file)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{file} is not a complete safetensors file: {error}") from error

    def drop_prefix(self, prefix: str) -> None:
        """Takes `prefix` from the names that have it."""
        self._untaken = {name.removeprefix(prefix): weight for name, weight in self._untaken.items()}

    def change(self, ending: str, rule: Callable[[Tensor], Tensor]) -> None:
        """Replaces the tensors whose names end so by what `rule` makes of them."""
        self._untaken = {
            name: rule(weight) if name.endswith(ending) else weight for name, weight in self._untaken.items()
        }

    def split(self, layer: str, sizes: dict[str, int]) -> None:
        """Replaces a linear layer without biases by several, given the number of outputs of each."""
        name = f"{layer}.weight"
        if self.has(name):
            joined = self.take(name, sum(sizes.values()), self._untaken[name].shape[-1])
            parts = torch.split(joined, [*sizes.values()])
            self._untaken |= {f"{part}.weight": weight for part, weight in zip(sizes, parts, strict=True)}

    def has(self, name: str) -> bool:
        return name in self._untaken

    def take(self, name: str, *shape: int) -> Tensor:
        """Raises ValueError where there is no such tensor of numbers, or its shape is not what config.json gives."""
        if name not in self._untaken:
            raise ValueError(f"the weights in {self._folder} lack {name}, which its config.json requires")
        weight = self._untaken.pop(name)
        if tuple(weight.shape) != shape or not weight.is_floating_point():
            found = f"{str(weight.dtype).removeprefix('torch.')} {tuple(weight.shape)}"
            raise ValueError(
                f"{name} in {self._folder} is {found}, but its config.json describes floating-point {shape}"
            )
        return weight

    def take_head(self, name: str, embedding: Tensor, *, tied: bool) -> dict[str, Tensor]:
        """The output layer by our name; none where it is the embedding (V, D)."""
        if not tied:
            return {"head.weight": self.take(name, *embedding.shape)}
        if self.has(name) and not self.take(name, *embedding.shape).equal(embedding):
            raise ValueError(f"{name} in {self._folder} differs from the embedding; set tie_word_embeddings to false")
        return {}

    def finish(self) -> None:
        """Raises ValueError where a tensor has not been taken."""
        for name in self._untaken:
            if not name.endswith(BUFFERS):
                raise ValueError(f"the weights in {self._folder} have {name}, which its config.json does not describe")


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise ValueError(f"{index} has no weight_map of file names")
    return [folder / Path(name).name for name in sorted(set(shards.values()))]
