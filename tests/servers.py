"""A server that a test starts and asks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 60


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(command: Sequence[str | Path], environment: Mapping[str, str], ready: str, folder: Path) -> Iterator[None]:
    """A server that is ready; it is gone afterwards, whatever happens.

    Args:
        ready: an address that answers once it is.
        folder: where it runs, and writes its `log`.
    """
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=file, stderr=file, start_new_session=True
        )
    try:
        _wait(process, ready, log)
        yield
    finally:
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    last = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < last:
        try:
            with urllib.request.urlopen(ready):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no answer from {ready}:\n{log.read_text(errors='replace')}")
