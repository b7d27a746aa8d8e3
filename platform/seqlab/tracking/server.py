"""MLflow's own pages on the store."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from seqlab.tracking.runs import settle
from seqlab.tracking.store import ENVIRONMENT, Store

# Without the workers for evaluating chats, which are six processes of 400 MB.
UI_ENVIRONMENT = {**ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

TRAINING_PAGE = "#/experiments?workflowType=machine_learning"
METRICS = ("val/loss", "val/accuracy", "val/bleu", "val/f1", "num_params", "state_size", "perf/tokens_per_s")
VIEW_TAG = "mlflow.sharedViewState.seqlab"
"""MLflow keeps a shared view of an experiment's runs in such a tag; a page's address names it."""
VIEW = {
    "selectedColumns": ["attributes.`Created`", "attributes.`Duration`", *(f"metrics.`{name}`" for name in METRICS)],
    "orderByKey": "metrics.`val/loss`",
    "orderByAsc": True,
}
"""Without it the page shows no metric. Columns of metrics that no run has are left out."""


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
        *("--uvicorn-opts", "--log-level=warning"),
    ]


def run_pages(store: Store) -> dict[str, str]:
    """The pages of the experiments' runs, sorted by their validation, by the experiments' names."""
    with store.calls() as client:
        found = {
            e.experiment_id: e
            for e in client.search_experiments()
            if client.search_runs([e.experiment_id], max_results=1)
        }
        for number, experiment in found.items():
            if VIEW_TAG not in experiment.tags:
                client.set_experiment_tag(number, VIEW_TAG, json.dumps(VIEW))
    key = VIEW_TAG.rpartition(".")[2]
    return {e.name: f"#/experiments/{number}/runs?viewStateShareKey={key}" for number, e in found.items()}


def ui(port: int) -> NoReturn:
    """Becomes a process that serves MLflow's pages until it is interrupted.

    Raises:
        ValueError: as `ui_command`.
    """
    store = Store()
    command = ui_command(store, port)
    settle(store)
    print(f"http://127.0.0.1:{port}/{TRAINING_PAGE} (Ctrl-C ends it)")
    for name, page in run_pages(store).items():
        print(f"http://127.0.0.1:{port}/{page} ({name})")
    sys.stdout.flush()
    os.execve(sys.executable, command, {**UI_ENVIRONMENT, **os.environ})
