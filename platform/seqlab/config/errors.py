"""One-sentence error messages from jsonargparse's nested reports: the problem, its location, and accepted values."""

from __future__ import annotations

import errno
import inspect
import re
import typing
from abc import ABC
from argparse import Action
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqlab.config.configs import LINKS, instead
from seqlab.config.parser import ParserError
from seqlab.files.atomic import size_limit, why_not_written

_NESTED = re.compile(
    r'\AParser key "([^"]+)":|^\s*(?:- )?(?:Does not validate against|Type .* expects a function or a callable)', re.M
)
"""Nested reports, matched only at the start of a line, so that a sentence quoting one is not parsed again."""
_LINKED = re.compile(r"^Call to compute_fn of link .* failed: ")
_NOT_AN_OPTION = re.compile(r"^(?:Option '([^']+)' is not accepted|unrecognized arguments: --([\w.]+))")
_MISSING = re.compile(r"the following arguments are required: (.+)")
REFUSED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NO_TEMPORARY_FOLDER = "No usable temporary directory"
"""Standard library's message when no temporary folder is writable, whatever the reason."""
_OF_A_WORKER = re.compile(r"Caught \w+ in DataLoader worker.*\n\w*Error: (.*)", re.S)
"""PyTorch's report of an exception in a DataLoader worker: a traceback, then the message."""
_NOT_OPTIONS = ("help", "config", "print_config", "print_shtab")
_NOT_A_CLASS = re.compile(r"(?:import path string: |does not correspond to a subclass.*?: |^No module named '?)(\S+)")


def sentence(error: BaseException) -> str:
    """One-sentence error message for the user; SEQLAB_DEBUG=1 shows the full error."""
    if isinstance(error, OSError) and error.errno in REFUSED_WRITES:
        return f"{why_not_written(error, Path(error.filename or '.'))} while writing {error.filename or 'a file'}"
    if isinstance(error, OSError) and (error.strerror or "").startswith(_NO_TEMPORARY_FOLDER):
        limit = size_limit()
        why = f"; files are limited to {limit} bytes (ulimit -f)" if limit is not None else ""
        return f"no temporary file can be written{why}; the environment variable TMPDIR names another folder for them"
    if match := _OF_A_WORKER.match(str(error)):
        return match[1].strip()
    keys, chain = _causes(error)
    message = _LINKED.sub("", " ".join(str(chain[-1]).split()))
    where = ".".join(keys)
    if match := _NOT_AN_OPTION.match(message):
        option = match[1] or match[2]
        return f"{_join(where, option)} is not an option; {instead(option, _options(chain, option))}"
    if match := _MISSING.match(message):
        missing = " and ".join(name.rpartition(".")[2] for name in match[1].split(", "))
        if where:
            return f"{where} lacks {missing}"
        hint = "" if "; see " in missing else ": --config NAME|PATH gives them, and seqlab configs lists the names"
        return f"no {missing}{hint}"
    if (match := _NOT_A_CLASS.search(message)) and keys:
        return f"{where}: there is no class {match[1]}; {instead(match[1], _classes(chain, keys[-1]))}"
    message = re.sub(r"\ba (?=<class '[aeiou])", "an ", message)
    message = message.replace("<class '", "").replace("'>", "").replace("a typing.Literal", "one of ")
    return _join(where, message, ": ")


def _causes(error: BaseException) -> tuple[list[str], list[BaseException]]:
    """Keys on the path to the innermost cause, and all errors down to it, which is not jsonargparse's own."""
    keys: list[str] = []
    chain = [error]
    while _NESTED.search(text := str(chain[-1]).strip()):
        cause = chain[-1].__cause__ or chain[-1].__context__
        if cause is None:
            break
        match = _NESTED.match(text)
        # Each level is reported twice, as a TypeError and as a ValueError.
        if match and match[1] and text != str(cause).strip():
            keys.append(match[1])
        chain.append(cause)
    return keys, chain


def _actions(chain: list[BaseException]) -> list[Action]:
    """Actions of the innermost parser that refused."""
    parsers = [error.parser for error in chain if isinstance(error, ParserError)]
    return parsers[-1]._actions if parsers else []


def _options(chain: list[BaseException], option: str) -> list[str]:
    """Options that a parser accepts at the level of the refused option."""
    names = [action.dest for action in _actions(chain) if action.option_strings]
    names = [name for name in names if name.split(".")[-1] not in _NOT_OPTIONS]
    if {"vocab_size", "seq_len"} <= set(names):  # a task's
        names = [name for name in names if name not in LINKS]
    siblings = [name for name in names if name.rpartition(".")[0] == option.rpartition(".")[0]]
    return siblings or names


def _classes(chain: list[BaseException], key: str) -> list[str]:
    """Short names of the classes that an option of the innermost parser accepts."""
    hints = [getattr(action, "_typehint", None) for action in _actions(chain) if action.dest == key]
    return sorted({found.__name__ for hint in hints for base in _bases(hint) for found in _concrete(base)})


def _bases(hint: Any) -> Iterator[type]:
    """Classes named by a type hint: the class itself, the return type of a factory, or the members of a union."""
    arguments = typing.get_args(hint)
    if inspect.isclass(hint) and not arguments:
        yield hint
    elif arguments and isinstance(arguments[0], list):
        yield from _bases(arguments[-1])
    else:
        for argument in arguments:
            yield from _bases(argument)


def _concrete(base: type) -> Iterator[type]:
    """Yields seqlab's concrete classes among a class and its subclasses."""
    if not inspect.isabstract(base) and ABC not in base.__bases__ and base.__module__.startswith("seqlab"):
        yield base
    subclass: type
    for subclass in base.__subclasses__():
        yield from _concrete(subclass)


def _join(where: str, what: str, separator: str = ".") -> str:
    return f"{where}{separator}{what}" if where else what
