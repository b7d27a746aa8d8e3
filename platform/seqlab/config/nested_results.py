"""Results of nested parsers, kept while one config is parsed.

jsonargparse parses the options of a class several times for each class around it: as a default, as given, merged, and
once more to validate. A model five classes deep takes 1,300 parses, most of which repeat another one exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

from jsonargparse import ArgumentParser, Namespace

_KEPT: ContextVar[dict[Hashable, list[tuple[Context, Namespace]]] | None] = ContextVar("nested_results", default=None)
"""Results by parser and arguments, each with jsonargparse's settings at the time, which are context variables."""


@contextmanager
def keeping_results() -> Iterator[None]:
    """Context of one parse, in which nested parsers return the results that they have had before.

    Nothing is kept afterwards: files, imported classes and the imports that are allowed may then be others.
    """
    if _KEPT.get() is not None:
        yield
        return
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def kept_or_parsed(parser: ArgumentParser, parse: Callable[..., Namespace], *args: Any, **kwargs: Any) -> Namespace:
    """Returns the kept result of a parser's method, or else calls it. Errors are not kept.

    Args:
        parser: parser whose method it is.
        parse: method of the parser.
        args, kwargs: arguments of the method. If one holds more than plain values, the method is always called.
    """
    kept = _KEPT.get()
    if kept is None:
        return parse(*args, **kwargs)
    try:
        key = (parser, parse.__name__, _hashable(args), _hashable(kwargs))
    except TypeError:
        return parse(*args, **kwargs)
    settings = copy_context()
    for before, result in kept.get(key, ()):
        if before == settings:
            return result.clone()
    parsed = parse(*args, **kwargs)
    kept.setdefault(key, []).append((settings, parsed.clone()))
    return parsed


def _hashable(value: Any) -> Hashable:
    """Copy of nested plain values in which values of different types differ, such as 1, 1.0 and true.

    Raises:
        TypeError: a value is of another type.
    """
    kind = type(value)
    if kind in (str, int, bool, type(None)):
        return kind, value
    if kind is float:
        return kind, repr(value)  # -0.0 equals 0.0, and nan does not equal itself
    if kind in (list, tuple):
        return kind, *map(_hashable, value)
    if kind in (dict, Namespace):
        entries = vars(value) if kind is Namespace else value
        return kind, *((_hashable(name), _hashable(entry)) for name, entry in entries.items())
    raise TypeError(f"{kind.__name__} is not plain")
