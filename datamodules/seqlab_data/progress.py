"""Progress bar for reading a long text on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress


class CharsRead:
    """Progress bar of characters read, on stderr, if stderr is a terminal and reading takes more than a second.

    Args:
        what: description of the work.
        total: total number of characters; None = unknown.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._next = time.monotonic() + 1 if sys.stderr.isatty() else float("inf")
        self._done = 0
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def add(self, num_chars: int) -> None:
        """Adds to the number of characters read."""
        self._done += num_chars
        if time.monotonic() > self._next:
            self._next = time.monotonic() + 0.25
            self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self._progress is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._progress.start()
            self._progress.add_task(self._what, total=self._total, text="")
        of_all = f" of {self._total / 1e6:.0f}" if self._total else ""
        text = f"{self._done / 1e6:.0f}{of_all} million characters"
        self._progress.update(self._progress.task_ids[0], completed=self._done, text=text)
        self._progress.refresh()
