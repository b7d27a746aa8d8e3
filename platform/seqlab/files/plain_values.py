"""Limits on plain values from untrusted files: a few kilobytes can reference one list 2^40 times.

Code that traverses such values visits a shared value once per reference, so references are counted beforehand.
Unpickling also traverses values: a tuple used as a dict key is hashed, including its nested tuples, each time.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import Any

import yaml

MOST_VALUES = 100_000
DEEPEST = 100
"""Maximum number of nested lists and maps that libyaml reads, which calls itself for each of them."""
LIBYAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_count(what: str, value: Any, most: int = MOST_VALUES) -> None:
    """Checks the number of nested values, counted once per reference. A value that contains itself is refused.

    Raises:
        ValueError: there are more than `most` values; the message begins with `what`.
    """
    if not _has_at_most(most, value, _entries):
        raise ValueError(f"{what} has more than {most} values")


def read_yaml(text: str, load: Callable[[str], Any] = yaml.safe_load) -> Any:
    """Parses a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, its aliases expand to too many values, or it is nested too deeply.
    """
    try:
        if "&" in text and "*" in text:  # checked before aliases are merged, which also traverses them
            most = max(MOST_VALUES, len(text))
            if not _has_at_most(most, yaml.compose(text, yaml.SafeLoader), _nodes):
                raise yaml.YAMLError(f"its aliases make more than {most} values")
        return load(text)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def load_quickly(text: str) -> Any:
    """Result of `yaml.safe_load`, by libyaml in an eighth of the time. A deep text, on which libyaml would end the
    process, and one that it refuses are left to PyYAML's own parser, whose words errors have.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    depth = 0
    try:
        for event in yaml.parse(text, LIBYAML):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                return yaml.safe_load(text)
        return yaml.load(text, LIBYAML)
    except yaml.YAMLError:
        return yaml.safe_load(text)


def check_pickle(content: bytes) -> None:
    """Checks, before unpickling, that a pickle does not create or hash more values than it has bytes. Every value takes
    at least a byte unless it is referenced repeatedly.

    Raises:
        ValueError: it does, it is not a pickle, a value contains itself, or a few bytes create a large bytearray.
    """
    most, hashed = max(MOST_VALUES, len(content)), 0
    stack: list[_Unread | None] = []  # None = a mark
    memo: dict[Any, _Unread | None] = {}
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif opcode.name == "MARK":
                stack.append(None)
            elif opcode.name != "PROTO":
                parts = _taken(stack, opcode)
                value = parts.pop(0) if opcode.name in GROW else _Unread(opcode.name, argument)
                value.add(parts)
                if not opcode.name.startswith(("APPEND", "TUPLE")):
                    hashed += sum(part.count for part in (parts[::2] if opcode.name in PAIRS else parts))
                if max(value.count, hashed) > most:
                    raise ValueError(f"its pickle has more than {most} values")
                stack.append(value)
    except (AttributeError, IndexError, KeyError):
        raise ValueError("its pickle takes values that are not there") from None


PAIRS = ("SETITEM", "SETITEMS")
GROW = ("APPEND", "APPENDS", "BUILD", *PAIRS)
"""Opcodes that modify the first of the values they pop."""


class _Unread:
    """A value of a pickle that has not been loaded.

    Attributes:
        count: number of values in it, including itself, counted once per reference.
        is_used: whether it is already part of another value and included in its count.
        has_number: whether it contains an integer.
    """

    def __init__(self, opcode: str, argument: Any) -> None:
        self.count, self.is_used, self.has_number = 1, False, isinstance(argument, int)
        self._is_call = opcode == "REDUCE"
        self._is_bytearray = opcode == "GLOBAL" and argument.endswith(" bytearray")

    def add(self, parts: list[_Unread]) -> None:
        if self._is_call and parts[0]._is_bytearray and parts[1].has_number:
            raise ValueError("its pickle has a bytearray of a length, without its bytes")
        for part in parts:
            part.is_used = True
            self.has_number |= part.has_number
        if self.is_used:
            raise ValueError("a value of its pickle holds itself")
        self.count += sum(part.count for part in parts)


def _taken(stack: list[_Unread | None], opcode: pickletools.OpcodeInfo) -> list[_Unread]:
    """Values that an opcode pops from the stack, in the order in which they were pushed."""
    kinds = opcode.stack_before
    after_mark: list[Any] = []
    if pickletools.markobject in kinds:
        while (part := stack.pop()) is not None:
            after_mark.append(part)
        kinds = kinds[: kinds.index(pickletools.markobject)]
    one_each: list[Any] = [stack.pop() for _ in kinds]
    return [*reversed(one_each), *reversed(after_mark)]


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


def check_text(text: str, what: str) -> None:
    """Raises ValueError if a command-line text contains bytes that are not UTF-8, which stores cannot keep."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{what} is not UTF-8: {text!r}; a run keeps its names and options as UTF-8")
