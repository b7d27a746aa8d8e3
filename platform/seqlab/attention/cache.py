"""The state of attention: what is kept of each key, in three kinds of cache.

One grows by T keys a call: what is new stands behind what was, pads among both, and `key_mask` says which are real. So
rows of a batch stay side by side, whatever their lengths, and a call costs one copy. One holds the last W real keys,
the latest last; how many of its places are taken follows from `position`. One has room for C real keys, each at the
place of its position, and is written in place by a runtime that can: pads are not stored, and behind `position` stands
nothing that may be read. Which one a mixer has is what it declares (`cache_spec`), never what a state looks like.

B batch, T query length, S key length, W window, C capacity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.mixer import POSITION, Entry, Spec, State
from seqlab.nn.padding import count_real, leading_pads, real_positions

KEY_MASK = Entry("key_mask", ("S",), torch.bool, kind="counter")
"""Mask of the keys of a growing cache that are real tokens."""


class Keys(NamedTuple):
    """All keys that the queries of one call could attend to.

    Attributes:
        entries: what the cache keeps of each, (B, ..., S, K), those of earlier calls first.
        q_positions: (B or 1, T), the positions of the queries, counting real tokens.
        k_positions: (B or 1, S).
        mask: (B, S) bool, True = a real token; None where all are.
        own: (B or 1, T), the place of each query's own key among them.
        state: the new state.
    """

    entries: dict[str, Tensor]
    q_positions: Tensor
    k_positions: Tensor
    mask: Tensor | None
    own: Tensor
    state: State


def cache_spec(rows: dict[str, tuple[int, ...]], window: int | None, capacity: int | None) -> Spec:
    """The state of a cache.

    Args:
        rows: the shapes (..., K) of what is kept of one key.
        window: W; None = every key is kept.
        capacity: C, where these have room from the start; None = they grow.
    """
    if window is not None:
        return POSITION, *(Entry(name, (*row[:-1], window, row[-1]), kind="window") for name, row in rows.items())
    length = "S" if capacity is None else "C"
    kept = tuple(Entry(name, (*row[:-1], length, row[-1]), kind="growing") for name, row in rows.items())
    return (POSITION, KEY_MASK, *kept) if capacity is None else (POSITION, *kept)


def append(x: Tensor, new: dict[str, Tensor], state: State | None, pad_mask: Tensor | None, length: int | str) -> Keys:
    """The keys of a state and those of x (B, T, D), whose entries are `new` (B, ..., T, K).

    Args:
        length: how many keys the cache is declared to keep: W, "C" or "S".
    """
    start = None if state is None else state["position"]
    q_positions = real_positions(start, pad_mask, x)
    count = count_real(pad_mask, x)
    position = {"position": count if start is None else start + count}
    if isinstance(length, int):
        return _in_window(x, new, state, pad_mask, length, q_positions, position)
    if length == "C":
        assert state is not None
        return _in_places(x, new, state, pad_mask, q_positions, position)
    mask = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask
    if state is None:
        entries, k_positions = new, q_positions
    else:
        entries = {name: torch.cat((state[name], entry), dim=-2) for name, entry in new.items()}
        mask = torch.cat((state["key_mask"], mask), dim=1)
        k_positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    seen = None if state is None and pad_mask is None else mask
    own = _last(mask.shape[1], x)
    return Keys(entries, q_positions, k_positions, seen, own, position | {"key_mask": mask} | entries)


def _in_places(
    x: Tensor, new: dict[str, Tensor], state: State, pad_mask: Tensor | None, q_positions: Tensor, position: State
) -> Keys:
    start, end = state["position"][:, None], position["position"][:, None]
    capacity = next(state[name].shape[-2] for name in new)
    source = now = torch.arange(x.shape[1], device=x.device)[None]
    if pad_mask is not None:
        # A pad writes what the real token nearest to it writes, and where.
        pads = leading_pads(pad_mask)[:, None]
        now = (now - pads).clamp(min=0).minimum(end - start - 1).clamp(min=0)
        source = (now + pads).clamp(max=x.shape[1] - 1)
    place = (start + now).clamp(max=capacity - 1)
    entries = {}
    for name, entry in new.items():
        if pad_mask is not None:
            # A row of pads alone writes what is there.
            here = _like(entry, end > start)
            entry = torch.where(here, _take(entry, source), _take(state[name], place))
        index = _like(entry, place).expand_as(entry)
        entries[name] = state[name].scatter(-2, index, entry)
    places = torch.arange(capacity, device=x.device)
    return Keys(entries, q_positions, places[None], places < end, q_positions, position | entries)


def _in_window(
    x: Tensor,
    new: dict[str, Tensor],
    state: State | None,
    pad_mask: Tensor | None,
    window: int,
    q_positions: Tensor,
    position: State,
) -> Keys:
    place = torch.arange(window, device=x.device)
    if state is None:
        entries = {name: F.pad(entry, (0, 0, window, 0)) for name, entry in new.items()}
        seen = Keys(new, q_positions, q_positions, pad_mask, _last(x.shape[1], x), {})
    else:
        entries = {name: torch.cat((state[name], entry), dim=-2) for name, entry in new.items()}
        before = state["position"][:, None] - window + place
        k_positions = torch.cat((before, q_positions.expand(x.shape[0], -1)), dim=1)
        now = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask
        real = torch.cat((before >= 0, now), dim=1)
        seen = Keys(entries, q_positions, k_positions, real, _last(window + x.shape[1], x), {})
    if pad_mask is None:
        kept = {name: entry[..., -window:, :] for name, entry in entries.items()}
    else:
        # The last W real keys: old ones move up by as many places as new ones come.
        count = count_real(pad_mask, x)[:, None]
        from_new = count - window + place
        source = torch.where(from_new >= 0, window + leading_pads(pad_mask)[:, None] + from_new, count + place)
        kept = {name: _take(entry, source) for name, entry in entries.items()}
    return seen._replace(state=position | kept)


def _last(length: int, x: Tensor) -> Tensor:
    """The last T of so many places, (1, T), for x (B, T, D)."""
    return torch.arange(length - x.shape[1], length, device=x.device)[None]


def _take(entry: Tensor, source: Tensor) -> Tensor:
    """entry (B, ..., S, K) at times `source` (B, W)."""
    return entry.gather(-2, _like(entry, source).expand(*entry.shape[:-2], -1, entry.shape[-1]))


def _like(entry: Tensor, times: Tensor) -> Tensor:
    """(B, W) as (B, 1, ..., W, 1), which goes with entries (B, ..., S, K)."""
    return times.view(times.shape[0], *[1] * (entry.dim() - 3), times.shape[1], 1)
