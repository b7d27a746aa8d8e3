"""Test cases for comparing a runtime with the float64 reference, and the error measure. NumPy only.

B batch, T tokens given, R rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.manifest import GraphInfo, TensorInfo
from seqlab_export.runner.tables import table

Arrays = Mapping[str, NDArray[np.generic]]

PROOF: dict[str, Any] = table("proof_constants")
"""Constants of the proof, the same in all three runtimes."""

ROWS: int = PROOF["rows"]
"""Number of rows of each decoder case, and minimum number for an encoder case; read in batches of every size."""

REDUCED_ROWS: int = PROOF["reduced_rows"]
"""`ROWS` of a reduced proof, which reads all of them in one batch: one for each way of padding."""

NUMBERS: int = PROOF["encoder_numbers"]
"""Minimum number of values compared at each position of an encoder's outputs: over the 20 values of ten rows with two
classes, the RMS error is mostly chance."""

MOST_NUMBERS: int = PROOF["most_numbers"]
"""Maximum number of values compared per group of outputs, so that golden files stay small."""

LEAST_NUMBERS: int = PROOF["least_numbers"]
"""Minimum number of values compared per output, if it has as many."""

LONGEST: int = PROOF["longest"]
"""Maximum sequence length of a case, if the model supports it."""

BATCH_SIZES: tuple[int, ...] = tuple(PROOF["batch_sizes"])
"""Batch sizes in which every case is read."""

MORE_BATCH_SIZES: tuple[int, ...] = tuple(PROOF["more_batch_sizes"])
"""Batch sizes in which one case is read; a batch with more rows than the case repeats its rows."""


def traced_len(longest: int | None) -> int:
    """Sequence length for capturing a graph: at most `traced_most`, and a part of the maximum, so that a case can be
    several times longer."""
    most: int = PROOF["traced_most"]
    return most if longest is None else min(max(longest // PROOF["traced_parts"], PROOF["traced_least"]), most)


def _case_lengths(longest: int | None) -> list[int]:
    """Lengths of `cases`: each entry of the table is a multiple of the traced length, and a number of tokens more."""
    return sorted({factor * traced_len(longest) + more for factor, more in PROOF["case_lengths"]})


def num_rows(reduced: bool) -> int:
    """Number of rows of each case of a proof."""
    return REDUCED_ROWS if reduced else ROWS


def cases(
    longest: int | None, *, reduced: bool = False, rows: int | None = None, least: int = 0
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Names and pad masks (R, T): lengths 1, 2, the traced length, one more and four times it, up to `longest`.

    Each length comes unpadded and padded, in a reduced proof only padded. Padded rows alternate between padding on the
    left, on the right, all but `least` tokens, all but the last token, and no padding.
    """
    rows = rows or num_rows(reduced)
    for length in _case_lengths(longest):
        if longest is not None and length > longest:
            continue
        if length == 1 or not reduced:
            yield f"length {length}", np.ones((rows, length), dtype=np.bool_)
        if length > 1:
            place = np.arange(length)
            bounds = {"begin": 0, "half": length // 2, "least": least, "last": length - 1, "end": length}
            masks = [(bounds[first] <= place) & (place < bounds[end]) for first, end in PROOF["spans"]]
            yield f"length {length}, padded", np.array([masks[row % len(masks)] for row in range(rows)])


def long_cases(longest: int | None, *, reduced: bool = False) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Name and pad mask (2, T) of a text of up to `LONGEST` positions, if longer than `cases`: far beyond the traced
    length, and usually beyond training length and windows. One row is unpadded; the other has a third of left padding.
    A reduced proof has the latter alone, (1, T).
    """
    length = LONGEST if longest is None else min(longest, LONGEST)
    if length > _case_lengths(longest)[-1]:
        pads = length // PROOF["long_pads"]
        masks = np.array([[True] * length, [place >= pads for place in range(length)]])
        yield f"length {length}", masks[1:] if reduced else masks


def one_call_lengths(longest: int | None, first_call: int = 1, *, reduced: bool = False) -> list[int]:
    """Lengths of texts that are read in one call: around each power of two from 16 on, the maximum, and one below it.
    Each length is at least `first_call`. A reduced proof has only the lengths above a power of two.
    """
    end = LONGEST if longest is None else min(longest, LONGEST)
    powers = (2**exponent for exponent in range(PROOF["first_power"].bit_length() - 1, end.bit_length() + 1))
    offsets = PROOF["around_powers"][-1:] if reduced else PROOF["around_powers"]
    around = {power + offset for power in powers for offset in offsets}
    around |= {end + offset for offset in PROOF["around_longest"]}
    return sorted(length for length in around if max(first_call, 1) <= length <= end)


def cells(
    masks: Mapping[str, NDArray[np.bool_]], longest: int | None, *, reduced: bool = False
) -> Iterator[tuple[int, str]]:
    """Pairs of a batch size and a case that is read in it: each case in `BATCH_SIZES`, and the last case whose length
    is at most the traced length plus one in `MORE_BATCH_SIZES`. A reduced proof reads each case in one batch, and the
    last case of at most two tokens in all of these sizes.
    """
    most = PROOF["reduced_batches_most"] if reduced else traced_len(longest) + 1
    of_all_sizes = [name for name, mask in masks.items() if mask.shape[1] <= most][-1]
    if reduced:
        yield from ((len(mask), name) for name, mask in masks.items())
    else:
        yield from product(BATCH_SIZES, masks)
    yield from product((*(BATCH_SIZES if reduced else ()), *MORE_BATCH_SIZES), [of_all_sizes])


def batches(rows: int, size: int) -> list[NDArray[np.intp]]:
    """Row indices of each batch of this size; rows repeat if the batch is larger than the number of rows."""
    if size > rows:
        return [np.arange(size) % rows]
    return np.split(np.arange(rows), range(size, rows, size))


def passes(rows: int, size: int) -> list[NDArray[np.intp]]:
    """Positions of the rows in the concatenated `batches`, one array per pass: a repeated row has several positions, so
    every position is checked."""
    last = (max(size, rows) - 1 - np.arange(rows)) // rows
    return [np.arange(rows) + rows * np.minimum(last, again) for again in range(int(last.max()) + 1)]


def encoder_cases(
    info: GraphInfo, longest: int | None, *, reduced: bool = False
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """`cases` of an encoder. A source has at least one token, since a decoder attends to nothing else."""
    least = 1 if info.inputs[0].name == "source" else 0
    judged = [output for output in info.outputs if output.dtype not in ("bool", "int64") and 0 not in output.dims]
    numbers = min((prod(dim for dim in output.dims if isinstance(dim, int)) for output in judged), default=NUMBERS)
    least_rows = num_rows(reduced)
    rows = least_rows * ceil(NUMBERS / (least_rows * numbers))
    for case, pad_mask in cases(longest, reduced=reduced, rows=rows, least=least):
        yield f"encoder/{case}", pad_mask


def calls(form: str, pad_mask: NDArray[np.bool_], first_call: int) -> list[slice]:
    """Slices of tokens (R, T) for successive calls: all in one call ("prefill"), halves ("chunks"), single tokens
    ("step"), or eighths whose last two tokens are read in single-token calls ("long").

    The first call holds at least `first_call` real tokens of every row that has as many.
    """
    length = pad_mask.shape[1]
    width = max(length // PROOF["form_parts"][form], PROOF["form_least"][form])
    real = pad_mask.cumsum(axis=1)
    missing = real < np.minimum(first_call, real[:, -1:])
    first = width if first_call == 1 else max(width, 1 + int(missing.sum(axis=1).max()))
    bounds = [0, *range(first, length, width), length]
    if form == "long":
        singles = [end - back for end in bounds[2:] for back in PROOF["steps_in_long"]]
        bounds = sorted({*bounds, *(place for place in singles if place > first)})
    return [slice(start, end) for start, end in pairwise(bounds)]


def groups(info: GraphInfo) -> dict[str, list[str]]:
    """Groups of outputs whose errors are judged together: "logits", "state" (floating-point entries) and "counters"
    (integer and boolean entries, which must be equal). Outputs that are empty at the start are not judged.
    """
    named: dict[str, list[str]] = {"logits": [], "state": [], "counters": []}
    for output in [output for output in info.outputs if 0 not in output.dims]:
        group = "counters" if output.dtype in ("bool", "int64") else "state"
        named["logits" if output.name == "logits" else group].append(output.name)
    return {group: names for group, names in named.items() if names}


def numbers_of(output: TensorInfo, info: GraphInfo) -> int:
    """Maximum number of values compared for an output of a graph."""
    together = next((names for names in groups(info).values() if output.name in names), [output.name])
    return max(MOST_NUMBERS // len(together), LEAST_NUMBERS)


def select_calls(
    logits: Iterable[NDArray[np.generic]], pieces: Sequence[slice], info: GraphInfo, pad_mask: NDArray[np.bool_]
) -> NDArray[np.generic]:
    """`select` on the logits of each call, (R, T, V), in turn, so that they are never all in memory."""
    most = MOST_NUMBERS // len(pieces)
    parts = zip(logits, pieces, strict=True)
    return np.concatenate([select(some, info.outputs[0], pad_mask[:, piece], most) for some, piece in parts])


def scored_in_call(length: int, vocab_size: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions (K,) of a call that begins a text whose logits are compared: those of `most` numbers spread over all
    positions, and the last one. Also the places of these numbers in the logits (K, V)."""
    position, token = np.divmod(spread(length * vocab_size, most), vocab_size)
    positions = np.union1d(position, [length - 1])
    return positions, np.searchsorted(positions, position) * vocab_size + token


def select_call(
    logits: NDArray[np.floating], places: NDArray[np.int64], following: NDArray[np.floating], most: int
) -> NDArray[np.floating]:
    """The compared values of a call that begins a text: those at these places of its logits (1, K, V), a sample of its
    last position, and of the following step's logits (1, 1, V), or (1, 0, V) if there is no step.
    """
    parts = [part.ravel() for part in (logits[:, -1:], following) if part.size]
    return np.concatenate([logits.ravel()[places], *(part[spread(part.size, most)] for part in parts)])


def select_outputs(found: Arrays, info: GraphInfo, pad_mask: NDArray[np.bool_], num_lengths: int) -> Arrays:
    """`select` on each output of an encoder that reads texts of `num_lengths` lengths."""
    most = {name: numbers_of_call(num_lengths, len(names)) for names in groups(info).values() for name in names}
    return {
        output.name: select(found[output.name], output, pad_mask, most[output.name]).ravel()
        for output in info.outputs
        if output.name in most
    }


def numbers_of_call(num_lengths: int, num_outputs: int = 1) -> int:
    """Maximum number of values compared in each part of an output, for texts of `num_lengths` lengths."""
    return int(max(MOST_NUMBERS // (PROOF["call_parts"] * num_lengths * num_outputs), PROOF["call_numbers"]))


def select(
    array: NDArray[np.generic], info: TensorInfo, pad_mask: NDArray[np.bool_], most: int = MOST_NUMBERS
) -> NDArray[np.generic]:
    """Sample of an output's values at real positions, as a flat array, for an output that started from no state.

    Args:
        array: output; arrays that are not floating-point are returned whole.
        info: description of the output, which locates its time dimension.
        pad_mask: (B, T) bool, True = real token.
        most: maximum number of values.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    times = [axis for axis, dim in enumerate(info.dims) if dim in ("T", "K", "T+1", "S+T", "M", "C")]
    if {"C", "T+1"} & {*info.dims}:  # real tokens come first, without gaps; in T + 1, after a class token
        pad_mask = np.arange(array.shape[times[0]]) < pad_mask.sum(axis=1, keepdims=True) + ("T+1" in info.dims)
    row = (np.moveaxis(array, times[0], 1)[pad_mask] if times else array).ravel()
    return row[spread(row.size, most)]


def spread(size: int, most: int) -> NDArray[np.int64]:
    """Places of the values that are compared, of `size`: all of them, or `most`."""
    if size <= most:
        return np.arange(size)
    # Multiples of the golden ratio modulo 1 leave no large gaps and, unlike equal steps, favour no column.
    return (np.arange(most) * float(PROOF["golden_ratio"]) % 1.0 * size).astype(np.int64)


def relative_errors(actual: Arrays, expected: Arrays, names: Sequence[str]) -> NDArray[np.float64]:
    """Concatenated differences of the named arrays, each in units of its RMS in `expected`."""
    rows = []
    for name in names:
        difference = actual[name].astype(np.float64) - expected[name].astype(np.float64)
        rows.append(difference.ravel() / (rms(expected[name]) or 1.0))
    return np.concatenate(rows)


def rms(values: NDArray[np.generic]) -> float:
    """Root mean square, in float64."""
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))


def limit(torch_rms: float, precision: str = "fp32") -> float:
    """Error budget of a runtime: maximum relative RMS error, given PyTorch's error `torch_rms` in this precision.

    The budget is twice PyTorch's error, but at least 4 eps: at small shapes a correct runtime's error is often more
    than twice PyTorch's. Quantised models compute in fp32 between integer products, and bf16 models throughout.
    """
    eps = 2.0 ** -PROOF["epsilon_bits"]["fp16" if precision == "fp16" else "fp32"]
    return float(max(PROOF["torch_errors"] * torch_rms, PROOF["epsilons"] * eps))
