"""Dicts and lists of plain values, as a file holds them: a few kilobytes can name one list 2^40 times.

Whatever walks such values takes them one by one, so a shared one counts each time, before anything walks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml

MOST_VALUES = 100_000


def check_count(what: str, value: Any, most: int = MOST_VALUES) -> None:
    """Refuses more values than `most`, of any depth, and what holds itself.

    Raises:
        ValueError: the message begins with `what`.
    """
    if not _has_at_most(most, value, _entries):
        raise ValueError(f"{what} has more than {most} values")


def read_yaml(text: str, load: Callable[[str], Any] = yaml.safe_load) -> Any:
    """The content of a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, its aliases make too many values, or it is nested too deeply.
    """
    try:
        if "&" in text and "*" in text:  # before aliases are merged, which walks them too
            most = max(MOST_VALUES, len(text))
            if not _has_at_most(most, yaml.compose(text, yaml.SafeLoader), _nodes):
                raise yaml.YAMLError(f"its aliases make more than {most} values")
        return load(text)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def _has_at_most(most: int, value: Any, entries: Callable[[Any], Iterator[Any]]) -> bool:
    found, open_ones = 0, [iter([value])]
    while open_ones:
        for entry in open_ones[-1]:
            found += 1
            if found > most:
                return False
            open_ones.append(entries(entry))
            break
        else:
            open_ones.pop()
    return True


def _entries(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter(value.values())
    return iter(value if isinstance(value, list | tuple | set | frozenset) else ())


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.MappingNode):
        return (part for pair in node.value for part in pair)
    return iter(node.value if isinstance(node, yaml.SequenceNode) else ())
