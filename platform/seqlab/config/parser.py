"""Parsers whose errors carry the parser that refused, and lead to the refusal that matters."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace, _common, _typehints
from jsonargparse._util import get_import_path

from seqlab.config.nested_results import keeping_results, kept_or_parsed

_OTHER_KIND = re.compile(r"Expected a <class 'list'>|Not a valid subclass of \S+ Got value: \[")
"""Refusals by a member of a union only because the value is or is not a list."""


class ParserError(ValueError):
    """Error of a parser, which is that of the command line or of a class named there."""

    parser: ArgumentParser


class Parser(ArgumentParser):
    """Raises errors as `ParserError`, which the command line prints in one sentence."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        error = ParserError(message)
        error.parser = self
        raise error from ex

    def parse_args(self, *args: Any, **kwargs: Any) -> Namespace:  # type: ignore[override]
        """Parses a command line."""
        with keeping_results():
            return super().parse_args(*args, **kwargs)

    def parse_object(self, *args: Any, **kwargs: Any) -> Namespace:
        """Parses a config given as nested values."""
        with keeping_results():
            return kept_or_parsed(self, super().parse_object, *args, **kwargs)

    def get_defaults(self, *args: Any, **kwargs: Any) -> Namespace:
        """Returns the default values of all options."""
        return kept_or_parsed(self, super().get_defaults, *args, **kwargs)


_refuse: Callable[..., NoReturn] = _typehints.raise_union_unexpected_value


def _refuse_by_cause(subtypes: Any, val: Any, exceptions: list[Exception]) -> NoReturn:
    """jsonargparse's refusal of a value by all members of a union. Its cause is the first that is not merely about
    whether the value is a list, as with a mixer, which is a class or a list of classes."""
    cause = next((one for one in exceptions if not _OTHER_KIND.match(str(one))), exceptions[-1])
    _refuse(subtypes, val, [cause, *exceptions])


_subclass_paths: Callable[..., list[str]] = _typehints.get_all_subclass_paths


def _own_subclass_paths(*args: Any, **options: Any) -> list[str]:
    """jsonargparse's list of the classes that a name may mean, without those that have another class's path:
    torch.export derives a class from each module's and gives it the same one."""
    paths = _subclass_paths(*args, **options)
    names = Counter(path.rpartition(".")[2] for path in paths)
    return [path for path in paths if names[path.rpartition(".")[2]] == 1 or _is_own(path)]


def _is_own(path: str) -> bool:
    """True unless the class at a path has another path. It is looked up among loaded modules: reading the config of a
    checkpoint must import nothing."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found is None or get_import_path(found) == path


_typehints.raise_union_unexpected_value = _refuse_by_cause
_typehints.get_all_subclass_paths = _own_subclass_paths
_common.null_logger.disabled = True  # thousands of messages are formatted for it
