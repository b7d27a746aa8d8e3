"""One-sentence error messages from jsonargparse's nested reports: the problem, its location, and accepted values."""

from __future__ import annotations

import errno
import inspect
import re
import traceback
import typing
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from seqlab.config.configs import LINKS, instead
from seqlab.files.atomic import size_limit, why_not_written

_NESTED = re.compile(
    r'\AParser key "([^"]+)":|^\s*(?:- )?(?:Does not validate against|Type .* expects a function or a callable)', re.M
)
"""Nested reports, matched only at the start of a line, so that a sentence quoting one is not parsed again."""
_LINKED = re.compile(r"^Call to compute_fn of link .* failed: ")
_OTHER_KIND = re.compile(r"Expected a <class 'list'>|Not a valid subclass of \S+ Got value: \[")
"""Refusals by a member of a union only because the value is or is not a list."""
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
        why = f"; files may have {limit} bytes at most here (ulimit -f)" if limit is not None else ""
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
        if where.startswith("trainer."):
            return f"{where} lacks {missing}"
        return f"no {missing}: --config NAME|PATH gives them, and seqlab configs lists the names"
    if (match := _NOT_A_CLASS.search(message)) and keys:
        return f"{where}: there is no class {match[1]}; {instead(match[1], _classes(chain))}"
    message = re.sub(r"\ba (?=<class '[aeiou])", "an ", message)
    message = message.replace("<class '", "").replace("'>", "").replace("a typing.Literal", "one of ")
    return _join(where, message, ": ")


def _causes(error: BaseException) -> tuple[list[str], list[BaseException]]:
    """Keys on the path to the innermost cause, and all errors down to it, which is not jsonargparse's own."""
    keys: list[str] = []
    chain = [error]
    while _NESTED.search(text := str(chain[-1]).strip()):
        cause = _cause(chain[-1])
        if cause is None:
            break
        match = _NESTED.match(text)
        # Each level is reported twice, as a TypeError and as a ValueError.
        if match and match[1] and text != str(cause).strip():
            keys.append(match[1])
        chain.append(cause)
    return keys, chain


def _cause(error: BaseException) -> BaseException | None:
    """Cause of an error. For a union, the first refusal that is not merely about whether the value is a list, as with a
    mixer, which is a class or a list of classes."""
    cause = error.__cause__ or error.__context__
    if _OTHER_KIND.match(str(cause)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            refusals = frame.f_locals.get("exceptions", [cause])
            cause = next((one for one in refusals if not _OTHER_KIND.match(str(one))), refusals[-1])
    return cause


def _selves(chain: list[BaseException]) -> Iterator[Any]:
    """Yields the `self` of each traceback frame, innermost first."""
    for error in reversed(chain):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        yield from (frame.f_locals["self"] for frame in reversed(frames) if "self" in frame.f_locals)


def _options(chain: list[BaseException], option: str) -> list[str]:
    """Options that a parser accepts at the level of the refused option."""
    for value in _selves(chain):
        for parser in (value, *getattr(value, "_subcommand_parsers", {}).values()):
            if isinstance(parser, ArgumentParser) and not parser._subcommands_action:
                names = [action.dest for action in parser._actions if action.option_strings]
                names = [name for name in names if name.split(".")[-1] not in _NOT_OPTIONS]
                if {"vocab_size", "seq_len"} <= set(names):  # a task's
                    names = [name for name in names if name not in LINKS]
                siblings = [name for name in names if name.rpartition(".")[0] == option.rpartition(".")[0]]
                return siblings or names
    return []


def _classes(chain: list[BaseException]) -> list[str]:
    """Short names of the classes that the innermost type accepts."""
    hints = (value._typehint for value in _selves(chain) if hasattr(value, "_typehint"))
    return sorted({found.__name__ for base in _bases(next(hints, None)) for found in _concrete(base)})


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
