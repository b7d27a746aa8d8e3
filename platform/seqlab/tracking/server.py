"""MLflow's own pages on the store."""

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

# Without the workers for evaluating chats, which are six processes of 400 MB.
UI_ENVIRONMENT = {**ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

TRAINING_PAGE = "#/experiments?workflowType=machine_learning"
QUALITY = ("val/loss", "val/accuracy", "val/bleu", "val/f1")
COST = ("num_params", "num_flops", "state_size", "perf/tokens_per_s")
COLUMNS = [
    *("attributes.`Created`", "tags.`mixer`", "tags.`positions`", "params.`model.init_args.lr`"),
    *(f"metrics.`{name}`" for name in (*QUALITY, *COST)),
    "attributes.`Duration`",
]
"""Without them the page shows no metric. Those that no run has are left out."""
BEST_FIRST = "seqlab", {"orderByKey": "metrics.`val/loss`", "orderByAsc": True}
SWEEPS = "seqlab-sweeps", {"orderByKey": "attributes.start_time", "orderByAsc": False}
"""MLflow shows a sweep's fits below its run where runs are sorted by time only."""
VIEW_TAG = "mlflow.sharedViewState."
"""MLflow keeps a shared view of an experiment's runs in such a tag; a page's address names it."""


def ui_command(store: Store, port: int) -> list[str]:
    """The command that serves MLflow's pages on a store, to this machine only.

    Raises:
        ValueError: the store is a server, which has its own pages, or there is none yet.
    """
    if store.remote:
        raise ValueError(f"the store is a server: open {store.uri} in a browser")
    store.check_exists()
    return [
        *(sys.executable, "-m", "mlflow", "ui"),
        *("--backend-store-uri", store.uri, "--default-artifact-root", str(store.root)),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        # uvicorn would look for modules in the working folder first; in the standard library's Python does so anyway.
        *("--uvicorn-opts", f"--log-level=warning --app-dir={shlex.quote(os.path.dirname(os.__file__))}"),
    ]


def run_pages(store: Store) -> dict[str, str]:
    """The pages of the experiments' runs, sorted by their validation, by the experiments' names; of one that has sweeps
    a second one."""
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
    """Raises ValueError where MLflow, which would say so with exit code 0, cannot serve on a port of this machine."""
    if not 1 <= port <= 65535:
        raise ValueError(f"--port must be from 1 to 65535, got {port}")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(f"--port {port} cannot be served on here: {error.strerror}; give another") from error


def _has_runs(client: MlflowClient, experiment: str, condition: str = "") -> bool:
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.search_runs([experiment], condition, max_results=1))
    except MlflowException:  # the newest cannot be read
        return True


def ui(port: int) -> NoReturn:
    """Becomes a process that serves MLflow's pages until it is interrupted.

    Raises:
        ValueError: as `ui_command`, or nothing can be served on this port.
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
