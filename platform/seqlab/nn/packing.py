"""Packing: rows that hold several documents, each of which a mixer processes as if it were alone.

B batch, T length, D channels, N documents of a group, L the longest of them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from seqlab.mixer import Mixer

SHORTEST = 0.8
"""Smallest length of a document in a group, as a fraction of the longest: at most a fifth of a group is padding."""


class Group(NamedTuple):
    """Documents of similar length.

    Attributes:
        places: (N, L) int64, indices of their tokens among the B T tokens of the batch; padding repeats the last one.
        real: (N, L) bool, True = a token; None = there is no padding.
    """

    places: Tensor
    real: Tensor | None


class Documents(NamedTuple):
    """The documents of packed rows.

    Attributes:
        positions: (B, T) int64, index of each token in its document; 0 at padding.
        groups: documents of similar length.
        back: (B, T) int64, index of each token among the tokens of all groups in turn; 0 at padding.
    """

    positions: Tensor
    groups: list[Group]
    back: Tensor

    @classmethod
    def of(cls, ids: Tensor) -> Self:
        """Documents of rows ids (B, T) int64: consecutive tokens with the same id are one document; below 0 = padding.

        Raises:
            ValueError: there is no document.
        """
        real, place = ids.ge(0).flatten(), torch.arange(ids.numel(), device=ids.device)  # (B T,) each
        begins = torch.ones_like(ids, dtype=torch.bool)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        first = torch.where(begins.flatten(), place, 0).cummax(dim=0).values  # (B T,) first token of each document
        starts = place[begins.flatten() & real]
        if not len(starts):
            raise ValueError("packed rows hold no document")
        lengths = torch.bincount(first[real], minlength=len(place))[starts]
        lengths, order = lengths.sort(descending=True, stable=True)
        starts, groups = starts[order], []
        for own in _groups(lengths.tolist()):
            columns = torch.arange(int(lengths[own][0]), device=ids.device)  # (L,)
            within = columns < lengths[own, None]  # (N, L)
            places = starts[own, None] + torch.minimum(columns, lengths[own, None] - 1)
            groups.append(Group(places, None if within.all() else within))
        tokens = torch.cat([_real(group.places, group) for group in groups])  # (tokens,)
        back = torch.zeros_like(place).scatter(0, tokens, torch.arange(len(tokens), device=ids.device))
        positions = torch.where(real, place - first, 0)
        return cls(positions.view_as(ids), groups, back.view_as(ids))


def each_alone(mixer: Mixer, x: Tensor, documents: Documents) -> Tensor:
    """Outputs (B, T, D) of a mixer for packed rows x (B, T, D), the documents read separately; any at padding."""
    tokens = x.flatten(0, 1)  # (B T, D)
    mixed = [_real(mixer(tokens[group.places], pad_mask=group.real)[0], group) for group in documents.groups]
    return torch.cat(mixed)[documents.back]


def _groups(lengths: list[int]) -> list[slice]:
    """Slices of documents, given their lengths in descending order."""
    groups, begin = [], 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or lengths[end] < SHORTEST * lengths[begin]:
            groups.append(slice(begin, end))
            begin = end
    return groups


def _real(x: Tensor, group: Group) -> Tensor:
    """The tokens (tokens, ...) of x (N, L, ...)."""
    return x.flatten(0, 1) if group.real is None else x[group.real]
