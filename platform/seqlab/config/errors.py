"""One sentence out of jsonargparse's nested reports: what was wrong, where, and what is accepted."""

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
"""Nested reports, only where a line begins: a sentence that quotes one of these has been told already."""
_LINKED = re.compile(r"^Call to compute_fn of link .* failed: ")
_OTHER_KIND = re.compile(r"Expected a <class 'list'>|Not a valid subclass of \S+ Got value: \[")
"""Refusals of a type of a union because there is no list, or because there is one."""
_NOT_AN_OPTION = re.compile(r"^(?:Option '([^']+)' is not accepted|unrecognized arguments: --([\w.]+))")
_MISSING = re.compile(r"the following arguments are required: (.+)")
REFUSED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NO_TEMPORARY_FOLDER = "No usable temporary directory"
"""Message of the standard library where it can write nowhere, whatever the reason."""
_OF_A_WORKER = re.compile(r"Caught \w+ in DataLoader worker.*\n\w*Error: (.*)", re.S)
"""PyTorch's report of what a process that loads batches has raised: its traceback, and then what it said."""
_NOT_OPTIONS = ("help", "config", "print_config", "print_shtab")
_NOT_A_CLASS = re.compile(r"(?:import path string: |does not correspond to a subclass.*?: |^No module named '?)(\S+)")


def sentence(error: BaseException) -> str:
    """Sentence that tells the user what went wrong; the whole error is for SEQLAB_DEBUG=1."""
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
    """The keys that lead to the innermost cause, and all errors down to it. The last is not jsonargparse's."""
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
    """An error's cause; of a union's refusals the first that is about what was given, not only about whether it is a
    list: a mixer is a list of classes or a class."""
    cause = error.__cause__ or error.__context__
    if _OTHER_KIND.match(str(cause)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            refusals = frame.f_locals.get("exceptions", [cause])
            cause = next((one for one in refusals if not _OTHER_KIND.match(str(one))), refusals[-1])
    return cause


def _selves(chain: list[BaseException]) -> Iterator[Any]:
    """The objects whose methods the errors passed, the innermost first."""
    for error in reversed(chain):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        yield from (frame.f_locals["self"] for frame in reversed(frames) if "self" in frame.f_locals)


def _options(chain: list[BaseException], option: str) -> list[str]:
    """Options that a parser accepts beside the one that it refused."""
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
    """The short names of the classes that the innermost type admits."""
    hints = (value._typehint for value in _selves(chain) if hasattr(value, "_typehint"))
    return sorted({found.__name__ for base in _bases(next(hints, None)) for found in _concrete(base)})


def _bases(hint: Any) -> Iterator[type]:
    """The classes that a hint asks for: a class, what a factory returns, or those of a union."""
    arguments = typing.get_args(hint)
    if inspect.isclass(hint) and not arguments:
        yield hint
    elif arguments and isinstance(arguments[0], list):
        yield from _bases(arguments[-1])
    else:
        for argument in arguments:
            yield from _bases(argument)


def _concrete(base: type) -> Iterator[type]:
    """Concrete classes of seqlab among the class itself and its subclasses."""
    if not inspect.isabstract(base) and ABC not in base.__bases__ and base.__module__.startswith("seqlab"):
        yield base
    subclass: type
    for subclass in base.__subclasses__():
        yield from _concrete(subclass)


def _join(where: str, what: str, separator: str = ".") -> str:
    return f"{where}{separator}{what}" if where else what
