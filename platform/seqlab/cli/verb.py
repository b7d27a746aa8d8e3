"""Verbs of the `seqlab` command, and arguments shared by several verbs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, NamedTuple

from seqlab.config.text_options import TextOption


class Argument(NamedTuple):
    """Arguments for argparse's `add_argument`."""

    names: tuple[str, ...]
    settings: dict[str, Any]


class Verb(NamedTuple):
    """A verb. `run` takes the parsed options and returns the exit code; it imports its dependencies when called."""

    name: str
    does: str
    arguments: tuple[Argument, ...]
    run: Callable[[argparse.Namespace], int]


def argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def verb(does: str, *arguments: Argument) -> Callable[[Callable[[argparse.Namespace], int]], Verb]:
    """Decorator that turns a function into a verb of the same name."""

    def named(run: Callable[[argparse.Namespace], int]) -> Verb:
        return Verb(run.__name__.replace("_", "-"), does, arguments, run)

    return named


def whole_number(text: str) -> int:
    """Parses an integer in ASCII digits, as `seqlab-run` does; Python would also accept 1_000 and other digits."""
    if not re.fullmatch("-?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def decimal(text: str) -> float:
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text) or not isfinite(float(text)):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text!r}")
    return float(text)


def text_arguments(options: Iterable[TextOption]) -> tuple[Argument, ...]:
    """Arguments for a table of options."""
    types = {int: whole_number, float: decimal, str: str}
    return tuple(
        argument(
            f"--{option.name.replace('_', '-')}",
            type=types[option.type],
            default=option.default,
            metavar=option.metavar,
            help=option.help + ("" if option.default in (None, "") else f"; default: {option.default:g}"),
        )
        for option in options
    )


A_RUN = "run id, unique prefix of one, run name or checkpoint"
RUN = argument("target", metavar="RUN", help=A_RUN)
RUN_OR_BUNDLE = argument("target", metavar="RUN|BUNDLE", help=f"{A_RUN}, or a bundle folder")
PROVIDER = argument("--provider", default="cpu", choices=["cpu", "cuda"], help="device of onnxruntime")
TRUST = argument(
    "--trust", action="append", default=[], metavar="MODULE", help="allow a stored config to import this module"
)
