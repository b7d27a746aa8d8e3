"""KV caches of attention, of three kinds.

A growing cache appends T keys per call, padding included; `key_mask` marks the real ones. Rows of different lengths
stay aligned, and a call costs one copy. A window cache holds the last W real keys, the latest last; `position` gives
the number of slots in use. A fixed-capacity cache has C slots, holds each real key at the slot of its position, and can
be updated in place by a runtime; it stores no padding, and slots from `position` on must not be read. The mixer's
declaration (`cache_spec`) decides which kind is used, never the shape of a state.

One row after a call with tokens 0, 1, 2 and a pad (..), then after a call with tokens 3 and 4; an unused slot is --:

    growing          | k0  k1  k2  .. |             | k0  k1  k2  ..  k3  k4 |
    key_mask         |  1   1   1   0 |             |  1   1   1   0   1   1 |

    window, W = 4    | --  k0  k1  k2 |             | k1  k2  k3  k4 |
    position         3                              5

    capacity, C = 6  | k0  k1  k2  --  --  -- |     | k0  k1  k2  k3  k4  -- |
    position         3                              5

B batch, T query length, S key length, W window, C capacity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.mixer import POSITION, State, StateEntry, StateSpec
from seqlab.nn.padding import count_real, leading_pads, real_positions

KEY_MASK = StateEntry("key_mask", ("S",), torch.bool, kind="counter")
"""Mask of the keys of a growing cache that are real tokens."""


class Keys(NamedTuple):
    """All keys that the queries of one call may attend to.

    Attributes:
        entries: cached tensors (B, ..., S, K) by name, keys of earlier calls first.
        q_positions: (B or 1, T), positions of the queries, counting real tokens.
        k_positions: (B or 1, S), positions of the keys.
        mask: (B, S) bool, True = a real token; None = all are real.
        own: (B or 1, T), index of each query's own key among the keys.
        state: the new state.
    """

    entries: dict[str, Tensor]
    q_positions: Tensor
    k_positions: Tensor
    mask: Tensor | None
    own: Tensor
    state: State


def cache_spec(rows: dict[str, tuple[int, ...]], window: int | None, capacity: int | None) -> StateSpec:
    """State entries of a cache.

    Args:
        rows: shapes (..., K) of the cached tensors for one key, by name.
        window: number of keys W to keep; None = all keys.
        capacity: number of preallocated slots C when all keys are kept; None = the cache grows.
    """
    if window is not None:
        return POSITION, *(StateEntry(name, (*row[:-1], window, row[-1]), kind="window") for name, row in rows.items())
    length = "S" if capacity is None else "C"
    kept = tuple(StateEntry(name, (*row[:-1], length, row[-1]), kind="growing") for name, row in rows.items())
    return (POSITION, KEY_MASK, *kept) if capacity is None else (POSITION, *kept)


def append(x: Tensor, new: dict[str, Tensor], state: State | None, pad_mask: Tensor | None, length: int | str) -> Keys:
    """Appends the keys of x (B, T, D), whose cache entries are `new` (B, ..., T, K), to the keys of a state.

    Args:
        length: declared length of the cache: W, "C" or "S".
    """
    start = None if state is None else state["position"]
    q_positions = real_positions(start, pad_mask, x)  # (B or 1, T)
    count = count_real(pad_mask, x)  # (B,)
    position = {"position": count if start is None else start + count}
    if isinstance(length, int):
        return _in_window(x, new, state, pad_mask, length, q_positions, position)
    if length == "C":
        assert state is not None
        return _in_places(x, new, state, pad_mask, q_positions, position)
    mask = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask  # (B, T)
    if state is None:
        entries, k_positions = new, q_positions
    else:
        entries = {name: torch.cat((state[name], entry), dim=-2) for name, entry in new.items()}  # (B, ..., S, K)
        mask = torch.cat((state["key_mask"], mask), dim=1)  # (B, S)
        k_positions = (mask.cumsum(dim=1) - 1).clamp(min=0)  # (B, S)
    seen = None if state is None and pad_mask is None else mask
    own = _last(mask.shape[1], x)  # (1, T)
    return Keys(entries, q_positions, k_positions, seen, own, position | {"key_mask": mask} | entries)


def _in_places(
    x: Tensor, new: dict[str, Tensor], state: State, pad_mask: Tensor | None, q_positions: Tensor, position: State
) -> Keys:
    start, end = state["position"][:, None], position["position"][:, None]  # (B, 1) each
    capacity = next(state[name].shape[-2] for name in new)
    source = now = torch.arange(x.shape[1], device=x.device)[None]  # (1, T)
    if pad_mask is not None:
        # A pad repeats the write of its nearest real token: same slot, same content.
        pads = leading_pads(pad_mask)[:, None]  # (B, 1)
        now = (now - pads).clamp(min=0).minimum(end - start - 1).clamp(min=0)  # (B, T)
        source = (now + pads).clamp(max=x.shape[1] - 1)  # (B, T)
    place = (start + now).clamp(max=capacity - 1)  # (B, T)
    entries = {}
    for name, entry in new.items():
        if pad_mask is not None:
            # A row of padding only rewrites the existing content.
            here = _like(entry, end > start)  # (B, ..., 1, 1)
            entry = torch.where(here, _take(entry, source), _take(state[name], place))  # (B, ..., T, K)
        index = _like(entry, place).expand_as(entry)  # (B, ..., T, K)
        entries[name] = state[name].scatter(-2, index, entry)  # (B, ..., C, K)
    places = torch.arange(capacity, device=x.device)  # (C,)
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
    place = torch.arange(window, device=x.device)  # (W,)
    if state is None:
        entries = {name: F.pad(entry, (0, 0, window, 0)) for name, entry in new.items()}  # (B, ..., W + T, K)
        seen = Keys(new, q_positions, q_positions, pad_mask, _last(x.shape[1], x), {})
    else:
        entries = {name: torch.cat((state[name], entry), dim=-2) for name, entry in new.items()}  # (B, ..., W + T, K)
        before = state["position"][:, None] - window + place  # (B, W)
        k_positions = torch.cat((before, q_positions.expand(x.shape[0], -1)), dim=1)  # (B, W + T)
        now = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask  # (B, T)
        real = torch.cat((before >= 0, now), dim=1)  # (B, W + T)
        seen = Keys(entries, q_positions, k_positions, real, _last(window + x.shape[1], x), {})
    if pad_mask is None:
        kept = {name: entry[..., -window:, :] for name, entry in entries.items()}  # (B, ..., W, K)
    else:
        # The last W real keys: old keys shift left by the number of new ones.
        count = count_real(pad_mask, x)[:, None]  # (B, 1)
        from_new = count - window + place  # (B, W)
        # (B, W)
        source = torch.where(from_new >= 0, window + leading_pads(pad_mask)[:, None] + from_new, count + place)
        kept = {name: _take(entry, source) for name, entry in entries.items()}  # (B, ..., W, K)
    return seen._replace(state=position | kept)


def _last(length: int, x: Tensor) -> Tensor:
    """Indices of the last T of `length` keys, (1, T), for x (B, T, D)."""
    return torch.arange(length - x.shape[1], length, device=x.device)[None]


def _take(entry: Tensor, source: Tensor) -> Tensor:
    """Gathers an entry (B, ..., S, K) at the indices `source` (B, W)."""
    return entry.gather(-2, _like(entry, source).expand(*entry.shape[:-2], -1, entry.shape[-1]))


def _like(entry: Tensor, times: Tensor) -> Tensor:
    """Reshapes (B, W) to (B, 1, ..., W, 1), which broadcasts with entries (B, ..., S, K)."""
    return times.view(times.shape[0], *[1] * (entry.dim() - 3), times.shape[1], 1)
