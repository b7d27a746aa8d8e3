"""Signal handling that stops a fit at a point from which it resumes exactly."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Ctrl-C, a termination request of the system or a batch queue, and SLURM's advance warning."""


class StoppedError(SystemExit):
    """A signal stopped a sweep, or a fit after it wrote a checkpoint. The exit code is 128 + the signal number."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"Stopped by {signal.Signals(self.signum).name}"


class StopSignals:
    """Records a signal of `SIGNALS` instead of terminating; Ctrl-C after that interrupts at once.

    Attributes:
        received: number of the first signal; 0 = none yet.
        during: name of the unit of work that is finished before stopping, such as "step".
    """

    def __init__(self) -> None:
        self.received, self.during = 0, "step"
        self._before: dict[int, Any] = {}

    def catch(self, during: str = "step") -> None:
        """Installs the handlers. A signal that is ignored, as in a shell's background job, stays ignored."""
        self.received, self.during = 0, during
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.getsignal(s) for s in SIGNALS if signal.getsignal(s) != signal.SIG_IGN}
            for signum in self._before:
                signal.signal(signum, self._note)

    def release(self) -> None:
        """Restores the previous handlers."""
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
        """Announces on stderr that the fit stops after the current unit of work."""
        # os.write, because the signal may have interrupted a print.
        name = signal.Signals(self.received).name
        os.write(2, f"\n{name}: stopping after this {self.during}; Ctrl-C stops at once\n".encode())


def exit_code(end: SystemExit) -> int:
    """Exit code of a command whose fit or evaluation was ended by a signal.

    Ranks other than 0 exit with 0; otherwise their launcher would kill rank 0, which still has metrics to send.
    """
    if getattr(rank_zero_only, "rank", 0) != 0:
        return 0
    if isinstance(end, SIGTERMException):
        return 128 + signal.SIGTERM
    if isinstance(end.__context__, KeyboardInterrupt):  # Lightning's own exit code is 1
        return 128 + signal.SIGINT
    return int(end.code or 0)
