"""MLflow's web UI on the store."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from seqlab.tracking.aside import ENVIRONMENT
from seqlab.tracking.runs import SWEEP_TAG, settle
from seqlab.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# Disables MLflow's job workers for chat evaluation, six processes of 400 MB each.
UI_ENVIRONMENT = {**ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

TRAINING_PAGE = "#/experiments?workflowType=machine_learning"
QUALITY = ("val/loss", "val/accuracy", "val/bleu", "val/f1")
COST = ("num_params", "num_flops", "state_size", "perf/tokens_per_s")
COLUMNS = [
    *("attributes.`Created`", "tags.`mixer`", "tags.`positions`", "params.`model.init_args.lr`"),
    *(f"metrics.`{name}`" for name in (*QUALITY, *COST)),
    "attributes.`Duration`",
]
"""Columns of the run table, which otherwise shows no metrics. Columns without values are not displayed."""
BEST_FIRST = "seqlab", {"orderByKey": "metrics.`val/loss`", "orderByAsc": True}
SWEEPS = "seqlab-sweeps", {"orderByKey": "attributes.start_time", "orderByAsc": False}
"""View for sweeps. MLflow shows a sweep's fits below its run only if runs are sorted by time."""
VIEW_TAG = "mlflow.sharedViewState."
"""Prefix of the tag in which MLflow stores a shared view of an experiment; the page URL names the view."""


def ui_command(store: Store, port: int) -> list[str]:
    """Command that serves MLflow's web UI on a store, for this machine only.

    Raises:
        ValueError: the store is a server, which has its own UI, or does not exist yet.
    """
    if store.remote:
        raise ValueError(f"the store is a server: open {store.uri} in a browser")
    store.check_exists()
    return [
        *(sys.executable, "-m", "mlflow", "ui"),
        *("--backend-store-uri", store.uri, "--default-artifact-root", str(store.root)),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        # uvicorn would search the working folder for modules first; the standard library's folder is searched anyway.
        *("--uvicorn-opts", f"--log-level=warning --app-dir={shlex.quote(os.path.dirname(os.__file__))}"),
    ]


def run_pages(store: Store) -> dict[str, str]:
    """UI paths of the experiments' run tables, sorted by validation loss, by experiment name. An experiment with sweeps
    has a second table."""
    pages = {}
    with store.calls() as client:
        for experiment in client.search_experiments():
            number = experiment.experiment_id
            if not _has_runs(client, number):
                continue
            views = {experiment.name: BEST_FIRST}
            if _has_runs(client, number, f"tags.`{SWEEP_TAG}` LIKE '%'"):
                views[f"{experiment.name}, its sweeps"] = SWEEPS
            for name, (key, order) in views.items():
                if VIEW_TAG + key not in experiment.tags:
                    view = {"selectedColumns": COLUMNS, "columnOrder": COLUMNS, **order}
                    client.set_experiment_tag(number, VIEW_TAG + key, json.dumps(view))
                pages[name] = f"#/experiments/{number}/runs?viewStateShareKey={key}"
    return pages


def check_port(port: int) -> None:
    """Raises ValueError if MLflow cannot serve on this port; MLflow itself would fail with exit code 0."""
    if not 1 <= port <= 65535:
        raise ValueError(f"--port must be from 1 to 65535, got {port}")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(f"--port {port} cannot be used: {error.strerror}; give another port") from error


def _has_runs(client: MlflowClient, experiment: str, condition: str = "") -> bool:
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.search_runs([experiment], condition, max_results=1))
    except MlflowException:  # the newest run is broken
        return True


def ui(port: int) -> NoReturn:
    """Replaces this process with MLflow's web UI, which runs until interrupted.

    Raises:
        ValueError: as `ui_command`, or the port cannot be used.
    """
    store = Store()
    command = ui_command(store, port)
    check_port(port)
    settle(store)
    print(f"http://127.0.0.1:{port}/{TRAINING_PAGE} (Ctrl-C ends it)")
    for name, page in run_pages(store).items():
        print(f"http://127.0.0.1:{port}/{page} ({name})")
    sys.stdout.flush()
    os.execve(sys.executable, command, {**UI_ENVIRONMENT, **os.environ})
