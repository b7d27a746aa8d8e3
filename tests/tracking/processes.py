"""The work of other processes in tests. They are forked from a server that has imported MLflow."""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

from seqlab.tracking.journal import Journal
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.store import Store


def context() -> ForkServerContext:
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store", __name__])
    return forkserver


def make_run(root: Path, barrier: threading.Barrier, number: int) -> None:
    """Makes a run once all others are ready to."""
    store = Store(root)
    barrier.wait()
    journal = Journal(store)
    journal.create("race", f"run {number}", {})
    journal.write({"op": "points", "points": [["x", number, 0, 0]]})


def run_for_ever(root: Path, running: threading.Event) -> None:
    """Makes a run and does not end it."""
    Journal(Store(root)).create("tests", "endless", process_tags())
    running.set()
    time.sleep(3600)
