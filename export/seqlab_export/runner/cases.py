"""Cases in which a runtime is compared with the float64 reference, and the measure of an error. NumPy only.

B batch, T tokens given, R rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.manifest import GraphInfo, TensorInfo

Arrays = Mapping[str, NDArray[np.generic]]

ROWS = 10
"""Rows of each case of a decoder, and at least so many of an encoder, read in batches of every size."""

NUMBERS = 400
"""Fewest numbers judged of each position of an encoder's outputs: over the 20 of ten rows of two classes the RMS error
is mostly chance."""

MOST_NUMBERS = 4096
"""Most numbers compared of outputs that are judged together, so that golden files stay small."""

LEAST_NUMBERS = 256
"""Fewest numbers compared of each output, where it has as many."""

LONGEST = 1024
"""Most positions that are read, where the model reads as many."""

BATCH_SIZES = (1, 2, 9)
"""Batches in which every case is read."""

MORE_BATCH_SIZES = (3, 4, 5, 8, 10, 16, 33)
"""Batches in which `case_of_more_batches` is read; where one has more rows than the case, its rows come again."""

_GOLDEN_RATIO = 0.6180339887498949


def traced_len(longest: int | None) -> int:
    """The length to capture a graph with: at most 16, and a quarter of what it can read, to test four times it."""
    return 16 if longest is None else min(max(longest // 4, 2), 16)


def cases(longest: int | None, *, rows: int = ROWS, least: int = 0) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Names and pad masks (R, T): lengths 1, 2, as traced, one more and four times it, as far as the model reads.

    Each length comes unpadded and padded: left, right, all but `least` tokens, all but the last one, and not at all, in
    turns.
    """
    traced = traced_len(longest)
    for length in sorted({1, 2, traced, traced + 1, 4 * traced}):
        if longest is not None and length > longest:
            continue
        yield f"length {length}", np.ones((rows, length), dtype=np.bool_)
        if length > 1:
            place, half = np.arange(length), length // 2
            spans = [(half, length), (0, half), (0, least), (length - 1, length), (0, length)]
            masks = [(first <= place) & (place < end) for first, end in spans]
            yield f"length {length}, padded", np.array([masks[row % len(masks)] for row in range(rows)])


def long_cases(longest: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Name and pad mask (2, T) of a text of up to `LONGEST` positions, where that is longer than `cases`: far behind
    the length of the capture, and mostly of training and windows. One row has no pads, one a third on its left.
    """
    length = LONGEST if longest is None else min(longest, LONGEST)
    if length > 4 * traced_len(longest):
        yield f"length {length}", np.array([[True] * length, [place >= length // 3 for place in range(length)]])


def one_call_lengths(longest: int | None, first_call: int = 1) -> list[int]:
    """Lengths of texts that are read in one call: around every power of two from 16 on, the longest, and one below it.
    Each holds the first call of a prefix-causal model.
    """
    end = LONGEST if longest is None else min(longest, LONGEST)
    powers = (2**exponent for exponent in range(4, end.bit_length() + 1))
    around = {end - 1, end, *(power + offset for power in powers for offset in (-1, 0, 1))}
    return sorted(length for length in around if max(first_call, 1) <= length <= end)


def case_of_more_batches(masks: Mapping[str, NDArray[np.bool_]], longest: int | None) -> str:
    """The last case that is no longer than one position over the length of the capture."""
    return [name for name, mask in masks.items() if mask.shape[1] <= traced_len(longest) + 1][-1]


def batches(rows: int, size: int) -> list[NDArray[np.intp]]:
    """The rows of each batch of this size; if it is larger than the number of rows, they repeat."""
    if size > rows:
        return [np.arange(size) % rows]
    return np.split(np.arange(rows), range(size, rows, size))


def passes(rows: int, size: int) -> list[NDArray[np.intp]]:
    """Places of the rows in `batches` end to end, pass by pass: rows that repeat have several, so that every place is
    looked at."""
    last = (max(size, rows) - 1 - np.arange(rows)) // rows
    return [np.arange(rows) + rows * np.minimum(last, again) for again in range(int(last.max()) + 1)]


def encoder_cases(info: GraphInfo, longest: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """`cases` of an encoder. A source has a token at least: a decoder has nothing else to look at."""
    least = 1 if info.inputs[0].name == "source" else 0
    judged = [output for output in info.outputs if output.dtype not in ("bool", "int64") and 0 not in output.dims]
    numbers = min((prod(dim for dim in output.dims if isinstance(dim, int)) for output in judged), default=NUMBERS)
    for case, pad_mask in cases(longest, rows=ROWS * ceil(NUMBERS / (ROWS * numbers)), least=least):
        yield f"encoder/{case}", pad_mask


def calls(form: str, pad_mask: NDArray[np.bool_], first_call: int) -> list[slice]:
    """Calls in which tokens (R, T) are read: one for all ("prefill"), of half of them ("chunks") or of one ("step"), or
    of an eighth, the last two tokens of each in calls of one ("long").

    The first call holds `first_call` real tokens of every row that has as many.
    """
    length = pad_mask.shape[1]
    width = {"prefill": length, "chunks": max(length // 2, 1), "step": 1, "long": max(length // 8, 4)}[form]
    real = pad_mask.cumsum(axis=1)
    missing = real < np.minimum(first_call, real[:, -1:])
    first = width if first_call == 1 else max(width, 1 + int(missing.sum(axis=1).max()))
    bounds = [0, *range(first, length, width), length]
    if form == "long":
        singles = [end - back for end in bounds[2:] for back in (1, 2)]
        bounds = sorted({*bounds, *(place for place in singles if place > first)})
    return [slice(start, end) for start, end in pairwise(bounds)]


def groups(info: GraphInfo) -> dict[str, list[str]]:
    """The outputs whose errors are judged together: "logits", "state" (floating-point entries) and "counters" (the
    others, which must be equal). What is empty at the start is not judged.
    """
    named: dict[str, list[str]] = {"logits": [], "state": [], "counters": []}
    for output in [output for output in info.outputs if 0 not in output.dims]:
        group = "counters" if output.dtype in ("bool", "int64") else "state"
        named["logits" if output.name == "logits" else group].append(output.name)
    return {group: names for group, names in named.items() if names}


def numbers_of(output: TensorInfo, info: GraphInfo) -> int:
    """Most numbers compared of an output of a graph."""
    together = next((names for names in groups(info).values() if output.name in names), [output.name])
    return max(MOST_NUMBERS // len(together), LEAST_NUMBERS)


def select_calls(
    logits: Iterable[NDArray[np.generic]], pieces: Sequence[slice], info: GraphInfo, pad_mask: NDArray[np.bool_]
) -> NDArray[np.generic]:
    """`select` of the logits of each call, (R, T, V), a part of the numbers of each: they are never all in memory."""
    most = MOST_NUMBERS // len(pieces)
    parts = zip(logits, pieces, strict=True)
    return np.concatenate([select(some, info.outputs[0], pad_mask[:, piece], most) for some, piece in parts])


def select_call(
    logits: NDArray[np.generic], following: NDArray[np.generic], info: TensorInfo, most: int
) -> NDArray[np.generic]:
    """`select` of the logits of a call that begins a text, (1, T, V), again of its last position alone, and of the
    logits of a step that follows it, (1, 1, V), or (1, 0, V) where none does.
    """
    parts = [part for part in (logits, logits[:, -1:], following) if part.size]
    return np.concatenate([select(part, info, np.ones(part.shape[:2], dtype=np.bool_), most) for part in parts])


def select_outputs(found: Arrays, info: GraphInfo, pad_mask: NDArray[np.bool_], num_lengths: int) -> Arrays:
    """`select` of each output of an encoder that reads texts of so many lengths."""
    most = {name: numbers_of_call(num_lengths, len(names)) for names in groups(info).values() for name in names}
    return {
        output.name: select(found[output.name], output, pad_mask, most[output.name]).ravel()
        for output in info.outputs
        if output.name in most
    }


def numbers_of_call(num_lengths: int, num_outputs: int = 1) -> int:
    """Most numbers compared of each part of an output, for texts of `num_lengths` lengths."""
    return max(MOST_NUMBERS // (3 * num_lengths * num_outputs), 16)


def select(
    array: NDArray[np.generic], info: TensorInfo, pad_mask: NDArray[np.bool_], most: int = MOST_NUMBERS
) -> NDArray[np.generic]:
    """Numbers that count of an output that started from no state, in one row: real positions, spread-out numbers.

    Args:
        array: float; others are compared whole.
        info: its description, which says where its time dimension is.
        pad_mask: (B, T) bool, True = a real token.
        most: how many numbers.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    times = [axis for axis, dim in enumerate(info.dims) if dim in ("T", "T+1", "S+T", "M", "C")]
    if {"C", "T+1"} & {*info.dims}:  # where real tokens stand first, without gaps; of T + 1, after a class token
        pad_mask = np.arange(array.shape[times[0]]) < pad_mask.sum(axis=1, keepdims=True) + ("T+1" in info.dims)
    row = (np.moveaxis(array, times[0], 1)[pad_mask] if times else array).ravel()
    if row.size <= most:
        return row
    # Multiples of the golden ratio modulo 1 leave no gap and, unlike equal steps, favour no column.
    place = np.arange(most) * _GOLDEN_RATIO % 1.0
    return row[(place * row.size).astype(np.int64)]


def relative_errors(actual: Arrays, expected: Arrays, names: Sequence[str]) -> NDArray[np.float64]:
    """The differences of the named arrays in one row, each array's in units of its RMS in `expected`."""
    rows = []
    for name in names:
        difference = actual[name].astype(np.float64) - expected[name].astype(np.float64)
        rows.append(difference.ravel() / (rms(expected[name]) or 1.0))
    return np.concatenate(rows)


def rms(values: NDArray[np.generic]) -> float:
    """Root mean square, in float64."""
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))


def limit(torch_rms: float, precision: str = "fp32") -> float:
    """Largest RMS error allowed a runtime, relative to the reference, where PyTorch's in this precision is `torch_rms`.

    Twice PyTorch's, but at least 4 eps: at small shapes a correct runtime's error is often over twice PyTorch's.
    Quantised models compute in fp32 between their integers, and bf16 ones throughout.
    """
    eps = np.finfo(np.float16 if precision == "fp16" else np.float32).eps
    return max(2 * torch_rms, 4 * float(eps))
