"""Progress of a verb that works for long: a bar on a terminal, a line for each long phase elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from seqlab.files.phases import listened

SECONDS = 2.0
"""Minimum time between two lines, in seconds: short work prints none."""


@contextmanager
def phases_shown(begins: str) -> Iterator[None]:
    """While entered, shows on stderr which phase of the work runs, how far it is and the time it has left.

    Args:
        begins: name of the work until its first phase.
    """
    with _bar(begins) if sys.stderr.isatty() else _lines():
        yield


@contextmanager
def _bar(begins: str) -> Iterator[None]:
    from rich import progress
    from rich.console import Console

    # stdout is not redirected, or results would end up on stderr.
    with progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    ) as bar:
        task = bar.add_task(begins, total=None)

        def show(phase: str, done: int, total: int) -> None:
            if bar.tasks[0].description != phase:
                bar.reset(task, description=phase, total=total)
            bar.update(task, completed=done, total=total)

        with listened(show):
            yield


@contextmanager
def _lines() -> Iterator[None]:
    began = shown = time.monotonic()
    phases = set[str]()

    def show(phase: str, done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS and (phase not in phases or now - shown >= 10 * SECONDS):
            phases.add(phase)
            shown = now
            print(f"{phase} {done}/{total} · {now - began:.0f} s", file=sys.stderr, flush=True)

    with listened(show):
        yield
