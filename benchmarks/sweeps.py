"""Cost of a trial of `seqlab sweep` besides its training, and of the same fit as a separate command.

It is the difference per trial between sweeps of 2 and of 8 trials of one step each, without the costs of a whole sweep.
Processor time is user and system time, of all processes.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

FEW, MANY, ROUNDS = 2, 8, 2
TRIAL = 40.0
"""Seconds of a typical trial, against which processor time is shown as a share."""
BE_SUBREAPER = 36
"""Option of Linux's `prctl`. Processes whose parent has ended become this one's children, and their time counts."""
ONE_STEP = ["--trainer.max_steps=1"]


class Cost(NamedTuple):
    cpu: float
    wall: float


def measured(*args: str) -> Cost:
    """Cost of a command in a folder of its own, until the last process that it started has ended."""
    cpu, wall = _children(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "seqlab", *args], cwd=folder, capture_output=True, check=True)
        wall = time.monotonic() - wall
        with suppress(ChildProcessError):
            while True:
                os.wait()
    return Cost(_children() - cpu, wall)


def sweep(trials: int) -> Cost:
    vary = "--vary=model.lr=1e-4..1e-2:log"
    return measured("sweep", "--config=lm/gru", vary, "--sampler=random", f"--trials={trials}", "--", *ONE_STEP)


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    if sys.platform != "linux":
        print("sweeps: not run: a sweep forks its fits on Linux only")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    ctypes.CDLL(None).prctl(BE_SUBREAPER, 1, 0, 0, 0)
    alone, of_sweep = [], []
    for _ in range(ROUNDS):
        alone.append(measured("fit", "--config=lm/gru", *ONE_STEP))
        few, many = sweep(FEW), sweep(MANY)
        of_sweep.append(Cost(*((more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True))))
    for name, costs in {"seqlab fit": alone, "a trial": of_sweep}.items():
        cpu, wall = (min(values) for values in zip(*costs, strict=True))
        print(f"{name:12}{cpu:6.2f} s of processor time ({cpu / TRIAL:.0%} of {TRIAL:.0f} s), {wall:6.2f} s")


if __name__ == "__main__":
    main()
