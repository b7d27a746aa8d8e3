"""Background sending of a run's writes during training, so that a slow server does not delay it."""

from __future__ import annotations

import logging
import sys
import threading
import time

from seqlab.tracking.aside import SENDING
from seqlab.tracking.journal import Journal
from seqlab.tracking.writes import Write, answer_timeout

ANSWER_SECONDS = 60
"""Timeout in seconds of a background request."""

MOST_SECONDS_AT_THE_END = 60.0
PAUSE = 1.0
"""Seconds between attempts while another process is sending this file."""

log = logging.getLogger("seqlab")


class Outbox:
    """Keeps a run's writes in its journal's file, and sends them in order from a background thread.

    If the process is killed, its unsent writes are in the file for the next command. Sending draws no random numbers
    from the generators that training uses.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._busy = False

    def write(self, write: Write) -> None:
        """Saves a write to disk or, if that fails, sends it at once."""
        if not self._journal.keep(write):
            self._journal.write(write)
            return
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="seqlab-tracking", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Waits until the server has accepted everything, and prints a notice. Waits at most one minute except for file
        uploads, and not for a server that does not answer."""
        journal, asked_at, told = self._journal, time.monotonic(), False
        journal.retry_at = 0.0
        self._wake.set()
        # The order matters: a thread that starts between the two checks is busy.
        while (journal.pending.exists() and journal.retry_at == 0) or self._busy:
            waited = time.monotonic() - asked_at
            if waited > PAUSE and not told:
                told = True
                print(f"sending the writes that {journal.store.uri} lacks", file=sys.stderr, flush=True)
            if waited > MOST_SECONDS_AT_THE_END and journal.sending != "upload":
                log.warning("the writes that MLflow lacks are in %s; the next command sends them", journal.pending)
                return
            time.sleep(0.02)

    def _send(self) -> None:
        SENDING.alone = True
        while True:
            left = self._journal.retry_at - time.monotonic()
            self._wake.wait(max(left, PAUSE) if self._journal.pending.exists() else None)
            self._wake.clear()
            self._busy = True
            try:
                self._send_all()
            except OSError as error:
                log.warning("tracking: %s", error)
            self._busy = False

    def _send_all(self) -> None:
        journal = self._journal
        with answer_timeout(ANSWER_SECONDS):
            while journal.pending.exists() and time.monotonic() >= journal.retry_at and journal.replay():
                pass
