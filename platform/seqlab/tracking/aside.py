"""MLflow beside a training: quiet, without waiting for a server, and drawing from no generator but its own."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

# A server that is down must not hold up training: one attempt, and what it misses is sent later (see journal.py).
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
}

SENDING = threading.local()
"""Has `alone` in a thread that only sends: there the generators, which training uses meanwhile, are not touched."""


@contextmanager
def aside() -> Iterator[None]:
    """Keeps MLflow's draws (run names, retries) from Python's and NumPy's generators.

    A logged run equals an unlogged one bit by bit, and runs of one seed do not all get the same name.
    """
    if getattr(SENDING, "alone", False):
        yield
        return
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def prepare_mlflow() -> None:
    """Imports MLflow, told to be quiet and not to wait for a server."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401  # configures its logger when imported

    from seqlab.tracking.bounded_answers import bound_answers

    bound_answers()
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store").setLevel(logging.CRITICAL)  # logs a traceback of what it raises
