"""MLflow during training: quiet, without waiting for a server, and without effect on random generators."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

# A server that is down must not delay training: one attempt only, and unsent writes are sent later (see journal.py).
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
}

SENDING = threading.local()
"""Has `alone` set in a sender thread, which must not touch the generators that training is using."""


@contextmanager
def aside() -> Iterator[None]:
    """Isolates MLflow's random draws (run names, retries) from Python's and NumPy's generators.

    A logged run is bit-identical to an unlogged one, and runs with the same seed still get different names.
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
    """Imports MLflow, configured to be quiet and not to wait for a server."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow  # noqa: F401  # configures its logger when imported

    from seqlab.tracking.bounded_answers import bound_answers

    bound_answers()
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store").setLevel(logging.CRITICAL)  # it logs a traceback of each error that it raises
