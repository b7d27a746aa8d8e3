"""Options of text generation, in one table for the command line, MLflow's params and Triton's inputs.

This module does not import NumPy, because the command line's `--help` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class TextOption(NamedTuple):
    """An optional setting of a request.

    Attributes:
        type: int, float or str.
        default: default value; None = disabled.
        metavar: placeholder of the value in the help.
    """

    name: str
    type: type[int] | type[float] | type[str]
    default: float | str | None
    metavar: str
    help: str


REPETITION = (
    TextOption("repetition_penalty", float, 1.0, "X", "above 1 penalises repetition"),
    TextOption("no_repeat_ngram", int, None, "N", "never repeat a sequence of N tokens"),
)
GENERATE = (
    TextOption("max_new_tokens", int, 200, "N", "maximum number of tokens to generate"),
    TextOption("temperature", float, 1.0, "X", "sampling temperature; 0 is greedy"),
    TextOption("top_k", int, None, "K", "sample from the K likeliest tokens"),
    TextOption("top_p", float, 1.0, "P", "sample from the likeliest tokens of total probability P"),
    TextOption("min_p", float, 0.0, "P", "sample from tokens at least P times as likely as the likeliest"),
    TextOption("seed", int, 0, "N", "random seed"),
    *REPETITION,
)
TRANSLATE = (
    TextOption("beams", int, 1, "K", "number of beams; 1 is greedy"),
    TextOption("length_penalty", float, 1.0, "X", "exponent of the length; 0 favours short outputs"),
    TextOption("prefix", str, "", "TEXT", "text that every output begins with"),
    *REPETITION,
)


def values(options: Iterable[TextOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Value of each option: the given value if it is not None, else the default.

    Raises:
        ValueError: an option is unknown.
    """
    known = {option.name: option.default for option in options}
    said = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in said if name not in known]:
        raise ValueError(f"there is no option {unknown[0]!r}; accepted: {', '.join(known) or 'none'}")
    return known | said
