"""Options of a model that writes: one table, for the command line, MLflow's params and Triton's inputs alike.

It imports no NumPy: the command line's `--help` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option that a caller may give or leave out.

    Attributes:
        type: int, float or str.
        default: None = it is not asked for.
        metavar: what stands for its value in the help.
    """

    name: str
    type: type[int] | type[float] | type[str]
    default: float | str | None
    metavar: str
    help: str


REPETITION = (
    Option("repetition_penalty", float, 1.0, "X", "above 1 avoids repetition"),
    Option("no_repeat_ngram", int, None, "N", "write no sequence of N tokens twice"),
)
GENERATE = (
    Option("max_new_tokens", int, 200, "N", "most tokens to write"),
    Option("temperature", float, 1.0, "X", "0 is greedy"),
    Option("top_k", int, None, "K", "choose among the K likeliest"),
    Option("top_p", float, 1.0, "P", "choose among the likeliest that make up P"),
    Option("min_p", float, 0.0, "P", "choose among those P times the likeliest"),
    Option("seed", int, 0, "N", "of the random numbers"),
    *REPETITION,
)
TRANSLATE = (
    Option("beams", int, 1, "K", "1 is greedy"),
    Option("length_penalty", float, 1.0, "X", "0 prefers short"),
    Option("prefix", str, "", "TEXT", "each target begins with it"),
    *REPETITION,
)


def values(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each option: what is given and not None, else its default.

    Raises:
        ValueError: there is no such option.
    """
    known = {option.name: option.default for option in options}
    said = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in said if name not in known]:
        raise ValueError(f"there is no option {unknown[0]!r}; accepted: {', '.join(known) or 'none'}")
    return known | said
