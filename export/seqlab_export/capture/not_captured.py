"""One-sentence explanation of why a model cannot be exported, in place of the exporters' sixty lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FROZEN = re.compile(r"You marked (\w+) as dynamic but your code specialized it to be a constant")
_GUARDED = re.compile(r"Not all values of (\w+) = .* satisfy the generated guard (.*)\.")
_NO_OPERATOR = re.compile(r"No ONNX function found for <OpOverload\(op='aten\.(\w+)'")
_LINE = re.compile(r'File "([^"]+)", line (\d+), in \w+\n\s*(.+)')

DIMENSIONS = {"T": "the length", "B": "the batch size", "M": "the source's length", "S": "the cache's length"}


def why_not(error: Exception) -> str:
    """Names the obstacle in a model's code, and an alternative."""
    said = "\n".join(map(str, _chain(error)))
    if match := _NO_OPERATOR.search(said):
        return (
            f"it uses torch.{match[1]}, which ONNX has no operator for; write it of other operations, what runs over "
            "time as seqlab.nn.scan.scan_over_time"
        )
    if match := _FROZEN.search(said):
        return (
            f"it is bound to one size of {_named(match[1])}, as by a loop over it or int() of it; write a loop "
            "over time as seqlab.nn.scan.scan_over_time, and sizes as x.shape gives them"
        )
    if match := _GUARDED.search(said):
        return (
            f"not every size of {_named(match[1])}, fits its code: a slice x[:, :-1] is empty at length 1; to move x "
            "on by one write torch.cat((first[:, None], x), dim=1)[:, : x.shape[1]]"
        )
    if "data-dependent" in said:
        match = _LINE.search(said)
        place = f" in {match[1]}, line {match[2]} ({match[3].strip()})" if match else ""
        return f"it decides by a tensor's value{place}; write torch.where, and keep numbers as tensors"
    return (str(error).strip() or repr(error)).splitlines()[0]


def _named(dimension: str) -> str:
    return f"{dimension}, {DIMENSIONS[dimension]}" if dimension in DIMENSIONS else dimension


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
