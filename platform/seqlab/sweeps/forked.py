"""A fit in a process forked from one that has imported all it needs, by Python's own fork server."""

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
"""Exit code of a process whose server is gone, so that its own is unknown."""
LETTERS = 15
"""Characters of a process's name that Linux keeps."""


class Forked:
    """`python -m seqlab` with these arguments, as if it were typed; otherwise as `subprocess.Popen` has it.

    Args:
        env: its environment; libraries read `OMP_NUM_THREADS` when they are imported, and the first one's holds.
        log: file for its output.
        name: its name in `ps`.

    Raises:
        OSError, EOFError: there is no fork server here, or it ends.
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
    """A name for a process, the same for the same text and no other."""
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
    multiprocessing.set_start_method(None, force=True)  # this process's own way is not for those that it starts
    sys.argv[1:] = args
    try:
        run_module("seqlab", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a process that was forked runs none


@contextmanager
def _starting(threads: str) -> Iterator[None]:
    """Context in which a new server has so many threads and finds no module in the working folder, and `__main__` is
    empty, as a process would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with patch.dict(os.environ, OMP_NUM_THREADS=threads, PYTHONSAFEPATH="1"):
            yield
    finally:
        sys.modules["__main__"] = main
