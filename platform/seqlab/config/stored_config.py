"""Checks of the config that a run stores; a fit starts only if the stored config reads back unchanged."""

from __future__ import annotations

import textwrap
from copy import deepcopy
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from seqlab.config.errors import sentence
from seqlab.config.trust import check_trust, to_trust

MOST_SHOWN = 300
WATCHERS = ("logger", "profiler")
"""Trainer options that are stored only if they are true or false. They select loggers and profilers, which belong to
the command, like the run name."""


def without_watchers(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved config in the form that a run stores."""
    trainer = config.get("trainer") or {}
    kept = {name: trainer[name] if isinstance(trainer[name], bool) else None for name in WATCHERS if name in trainer}
    return {**config, "trainer": trainer | kept} if kept else config


def check_opens(stored: dict[str, Any]) -> None:
    """Checks that other verbs will be able to load a config.

    Raises:
        ValueError: they will not; the message names the key and the problem.
    """
    try:
        check_trust(stored, to_trust(stored))
    except ValueError as error:
        raise ValueError(f"a run of this config could not be loaded again: {error}") from error


def check_reads_back(parser: ArgumentParser, stored: dict[str, Any], given: Namespace) -> None:
    """Checks that a run can be loaded, exported and resumed from its stored config.

    Args:
        parser: parser that reads the stored config.
        stored: config as plain values, as it will be stored.
        given: config as parsed.

    Raises:
        ValueError: a value would read back differently; the message names its key.
    """
    whole = without_watchers(given.clone(with_meta=False).as_dict())
    try:
        wrong = _difference(
            {key: whole.get(key) for key in stored}, parser.parse_object(deepcopy(stored), defaults=False).as_dict()
        )
    except ValueError as error:
        wrong = sentence(error)
    if wrong is not None:
        shown = textwrap.shorten(wrong, MOST_SHOWN, placeholder=" ...")
        raise ValueError(f"a run of this config could not be loaded again: {shown}")


def _difference(given: Any, read: Any, key: str = "") -> str | None:
    """First key whose values differ, with both values. Missing options equal None, missing init_args equal an empty
    dict, and a default class equals its class path."""
    if isinstance(given, type) and isinstance(read, dict):
        given = read if read.get("class_path", "").endswith(f".{given.__name__}") else given
    if isinstance(given, dict) and isinstance(read, dict):
        pairs = [(name, given.get(name), read.get(name)) for name in given | read]
        pairs = [(name, *((found or {} for found in both) if name == "init_args" else both)) for name, *both in pairs]
    elif isinstance(given, list | tuple) and isinstance(read, list | tuple) and len(given) == len(read):
        pairs = [(str(place), *both) for place, both in enumerate(zip(given, read, strict=True))]
    else:
        return None if given == read else f"{key} is {given!r} and would be stored as {read!r}"
    found = (_difference(ours, theirs, f"{key}.{name}" if key else name) for name, ours, theirs in pairs)
    return next(filter(None, found), None)
