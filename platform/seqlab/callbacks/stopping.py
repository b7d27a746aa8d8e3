"""Stopping a fit by a signal, at a place from which it resumes exactly."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Ctrl-C, the system's and a batch queue's request, and SLURM's warning."""


class StoppedError(SystemExit):
    """A signal stopped a fit, its checkpoint written, or a sweep. The exit code is 128 + the signal's number."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"Stopped by {signal.Signals(self.signum).name}"


class StopSignals:
    """Notes a signal of `SIGNALS` instead of dying of it; Ctrl-C after that interrupts at once.

    Attributes:
        received: the first signal's number; 0 before it.
        during: what is finished before the stop.
    """

    def __init__(self) -> None:
        self.received, self.during = 0, "step"
        self._before: dict[int, Any] = {}

    def catch(self, during: str = "step") -> None:
        """Starts noting. A signal that is ignored, as in the background of a shell, stays ignored."""
        self.received, self.during = 0, during
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.getsignal(s) for s in SIGNALS if signal.getsignal(s) != signal.SIG_IGN}
            for signum in self._before:
                signal.signal(signum, self._note)

    def release(self) -> None:
        """Puts back what was there before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = signum
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.say()

    @rank_zero_only
    def say(self) -> None:
        """Says that the fit stops, and after what."""
        # Not by print, which may be what the signal has interrupted.
        name = signal.Signals(self.received).name
        os.write(2, f"\n{name}: stopping after this {self.during}; Ctrl-C stops at once\n".encode())


def exit_code(end: SystemExit) -> int:
    """Exit code of a command after a fit or an evaluation that a signal ended.

    Ranks other than 0 end with 0: their launcher would kill the first, which still has points to send.
    """
    if getattr(rank_zero_only, "rank", 0) != 0:
        return 0
    if isinstance(end, SIGTERMException):
        return 128 + signal.SIGTERM
    if isinstance(end.__context__, KeyboardInterrupt):  # Lightning's own exit code is 1
        return 128 + signal.SIGINT
    return int(end.code or 0)
