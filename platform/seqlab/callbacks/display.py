"""How progress looks on stderr: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column


class Display(ABC):
    """Named counts with a text each.

    Args:
        seconds: the least time between two times that something is shown, unless it must be.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._shown_at = time.monotonic()

    def due(self) -> bool:
        """Whether it is time to show something; whoever is told so shows it."""
        if time.monotonic() - self._shown_at < self.seconds:
            return False
        self._shown_at = time.monotonic()
        return True

    @abstractmethod
    def show(self, name: str, done: int, total: float, text: str) -> None:
        """Shows that `done` of `total` are done; a total may be infinite."""

    @abstractmethod
    def finish(self, name: str) -> None:
        """No more of this count."""

    @abstractmethod
    def close(self) -> None:
        """No more of any."""


class Bars(Display):
    """One bar a count, redrawn in place."""

    def __init__(self) -> None:
        super().__init__(seconds=0.25)
        # Redrawn by whoever shows something: a thread that redraws would slow the fit more. Results go to stdout,
        # which is not redirected, or they would end up on stderr.
        self._progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            redirect_stdout=False,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, done: int, total: float, text: str) -> None:
        if name in self._tasks:
            self._progress.update(self._tasks[name], completed=done, text=text)
            self._progress.refresh()
        else:
            self._progress.start()
            limit = None if total == float("inf") else total
            self._tasks[name] = self._progress.add_task(name, completed=done, total=limit, text=text)

    def finish(self, name: str) -> None:
        if name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))
            self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class Lines(Display):
    """A line of text without control characters, at most every 20 s."""

    def __init__(self) -> None:
        super().__init__(seconds=20.0)

    def show(self, name: str, done: int, total: float, text: str) -> None:
        count = f"{done}" if total == float("inf") else f"{done}/{total:.0f}"
        print(" · ".join(filter(None, (f"{name} {count}", text))), file=sys.stderr, flush=True)

    def finish(self, name: str) -> None:
        """What is printed stays."""

    def close(self) -> None:
        """What is printed stays."""


def display() -> Display:
    return Bars() if sys.stderr.isatty() else Lines()
