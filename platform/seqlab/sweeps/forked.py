"""Fits forked by Python's fork server from a process that has already imported everything they need."""

from __future__ import annotations

import atexit
import hashlib
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from runpy import run_module
from types import ModuleType
from unittest.mock import patch

PRELOADED = "seqlab.cli.preloaded"
LOST = 255
"""Exit code of a process whose fork server has died, so that its real exit code is unknown."""
LETTERS = 15
"""Maximum characters of a process name on Linux."""


class Forked:
    """Runs `python -m seqlab` with the given arguments, with the interface of `subprocess.Popen`.

    Args:
        args: command-line arguments.
        env: environment; `OMP_NUM_THREADS` is read when libraries are imported, so the first process's value holds.
        log: file for the output.
        name: process name in `ps`.

    Raises:
        OSError, EOFError: a fork server is not available, or it has died.
    """

    def __init__(self, args: list[str], env: Mapping[str, str], log: Path, name: str) -> None:
        with _starting(env["OMP_NUM_THREADS"]):
            self._process = _context().Process(target=_run, args=(args, dict(env), str(log), name))
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> None:
        self._process.join()


def short(text: str) -> str:
    """Process name derived from a hash of a text."""
    return f"fit-{hashlib.sha256(text.encode()).hexdigest()}"[:LETTERS]


def _context() -> ForkServerContext:
    if sys.platform != "linux":
        raise OSError("a process that has imported these libraries can be forked on Linux only")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    return context


def _run(args: list[str], env: dict[str, str], log: str, name: str) -> None:
    """Runs seqlab in the forked process."""
    Path("/proc/self/comm").write_text(name, encoding="ascii")
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.environ.clear()
    os.environ.update(env)
    multiprocessing.set_start_method(None, force=True)  # do not inherit the start method for child processes
    sys.argv[1:] = args
    try:
        run_module("seqlab", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # forked processes do not run exit handlers


@contextmanager
def _starting(threads: str) -> Iterator[None]:
    """Context for starting a server: sets its threads, hides the working folder's modules from it, and replaces
    `__main__`, which the process would run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with patch.dict(os.environ, OMP_NUM_THREADS=threads, PYTHONSAFEPATH="1"):
            yield
    finally:
        sys.modules["__main__"] = main
