"""The config that a run stores: a fit begins only if it will be read again as it was given."""

from __future__ import annotations

import textwrap
from copy import deepcopy
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from seqlab.config.errors import sentence
from seqlab.config.trust import check_trust, to_trust

MOST_SHOWN = 300
WATCHERS = ("logger", "profiler")
"""Options of the trainer that are not stored, but for true and false: they say who looks on at a fit, and where that
is written down, and belong to the command like the name of the run."""


def without_watchers(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved config as a run stores it."""
    trainer = config.get("trainer") or {}
    kept = {name: trainer[name] if isinstance(trainer[name], bool) else None for name in WATCHERS if name in trainer}
    return {**config, "trainer": trainer | kept} if kept else config


def check_opens(stored: dict[str, Any]) -> None:
    """Refuses a config that every verb would refuse to load afterwards.

    Raises:
        ValueError: the message names the key, and what is wrong with it.
    """
    try:
        check_trust(stored, to_trust(stored))
    except ValueError as error:
        raise ValueError(f"a run of this config could not be loaded again: {error}") from error


def check_reads_back(parser: ArgumentParser, stored: dict[str, Any], given: Namespace) -> None:
    """Refuses a config that a run could not be loaded, exported or resumed from.

    Args:
        parser: what reads the stored config.
        stored: the given config as plain values.

    Raises:
        ValueError: a value of it would be read as another; the message names its key.
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
    """The first key whose values differ, and these. An option that is not stored is None, options are none; a class
    that is a default is stored by its path."""
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
