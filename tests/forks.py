"""The server of forks that a sweep starts, forked from this process, which has imported all that a fit needs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import forkserver, resource_tracker
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from warnings import catch_warnings


@contextmanager
def server_of_this_process(at_exit: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Its process id. What is patched when it starts is patched in the fits.

    Args:
        at_exit: called by a fit in the place of this process's own exit functions.
    """
    server: Any = vars(forkserver)["_forkserver"]
    with catch_warnings(action="ignore"):  # of one that another test has ended
        resource_tracker.ensure_running()  # as a process of its own
    with (
        patch("multiprocessing.util.spawnv_passfds", _fork),
        patch("seqlab.sweeps.forked.atexit", SimpleNamespace(_run_exitfuncs=at_exit)),
    ):
        server._stop()
        server.ensure_running()
    try:
        yield server._forkserver_pid
    finally:
        server._stop()


def _fork(path: str, args: list[str], passfds: list[int]) -> int:
    if (child := os.fork()) == 0:
        try:
            gc.freeze()  # a tensor in shared memory, freed once its file is closed below, would abort the process
            ends = [0, 1, 2, *sorted(passfds), os.sysconf("SC_OPEN_MAX")]
            for before, after in pairwise(ends):
                os.closerange(before + 1, after)  # as those of a process that is not forked are
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            sys.modules.pop("seqlab.__main__", None)  # a test may have imported it, a server has not
            main: Any = forkserver.main
            main(*passfds, [])
        finally:
            os._exit(0)
    return child
