"""Reading runs from a store that may contain broken rows, which are reported with name and defect."""

from __future__ import annotations

import math
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqlab.files.plain_tables import SQLITE
from seqlab.tracking.store import Store, UnreachableError
from seqlab.tracking.stored import Rows, StoredRun, address

if TYPE_CHECKING:
    from mlflow.entities import Run

LATEST = 253402300799999
"""Last millisecond of the year 9999, the latest time that Python supports."""
MOST_PAGES = 1000
"""Maximum number of pages of one search, each with up to 1,000 runs."""
AT_ONCE = 500
"""Maximum number of run ids in one query."""


class BrokenRun(NamedTuple):
    """A run that cannot be read."""

    id: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]}): {self.why}"


def read_runs(store: Store, experiments: list[str], condition: str) -> tuple[list[Run], list[BrokenRun]]:
    """Runs of these experiment ids that meet a condition in MLflow's filter language, newest first, and broken runs.

    Raises:
        UnreachableError: the store does not answer.
    """
    broken: list[BrokenRun] = []
    try:
        found = list(_searched(store, experiments, condition))
    except UnreachableError:
        if store.remote:
            raise
        # MLflow returns no run of a page that contains a broken one.
        names = _names(store)
        ids = [run_id for run_id in names if re.fullmatch(r"\w+", run_id)]
        broken += [BrokenRun(run_id, names[run_id], "its id is invalid") for run_id in names if run_id not in ids]
        found = []
        for start in range(0, len(ids), AT_ONCE):
            found += _whole_ones(store, experiments, condition, ids[start : start + AT_ONCE], names, broken)
    whole = []
    for run in found:
        if why := _defect(run):
            broken.append(BrokenRun(str(run.info.run_id), str(run.info.run_name), why))
        else:
            whole.append(run)
    return whole, broken


def stored_runs(store: Store, experiment: str | None) -> list[tuple[str, StoredRun]] | None:
    """Runs of an experiment with its name, newest first, read without MLflow; None = of all experiments. Returns None
    for a server, and if a value is not as MLflow writes it."""
    if store.remote or not store.exists:
        return None
    try:
        found = Rows(Path(store.uri.removeprefix(SQLITE))).runs(experiment)
    except (ValueError, sqlite3.Error, OSError):
        return None
    return found if all(run.info.run_name and not _defect(run) for _, run in found) else None


def read_points(store: Store, run: Run | StoredRun, metric: str) -> list[tuple[Any, Any]]:
    """Steps and values of a metric of a run, in no order; a value that is not a number may be of any type."""
    with suppress(sqlite3.Error):
        if isinstance(run, StoredRun):
            return run.points(metric)
    with store.calls(reads=True) as client:
        return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric)]


def experiment_names(store: Store) -> dict[str, str]:
    """Names of the experiments by id."""
    if not store.exists:
        return {}
    with store.calls(reads=True) as client:
        return {experiment.experiment_id: str(experiment.name) for experiment in client.search_experiments()}


def _searched(store: Store, experiments: list[str], condition: str) -> Iterator[Run]:
    token: str | None = None
    tokens: set[str] = set()
    while experiments:
        with store.calls(reads=True) as client:
            page = client.search_runs(experiments, condition, order_by=["attributes.start_time DESC"], page_token=token)
        yield from page
        token = page.token
        if not token:
            return
        if token in tokens or len(tokens) + 1 == MOST_PAGES:
            why = "the same page of runs again" if token in tokens else f"more than {MOST_PAGES} pages of runs"
            raise UnreachableError(f"MLflow at {store.uri} gives {why}")
        tokens.add(token)


def _whole_ones(
    store: Store, experiments: list[str], condition: str, ids: list[str], names: dict[str, str], broken: list[BrokenRun]
) -> list[Run]:
    """Runs with the given ids that MLflow can read. The others, found by bisection, are added to `broken`."""
    of_these = f"attributes.run_id IN ({', '.join(map(repr, ids))})"
    try:
        return list(_searched(store, experiments, f"{condition} and {of_these}" if condition else of_these))
    except UnreachableError as error:
        if len(ids) == 1:
            broken.append(BrokenRun(ids[0], names[ids[0]], str(error.__cause__).partition("\n")[0]))
            return []
        half = len(ids) // 2
        parts = (ids[:half], ids[half:])
        return [run for part in parts for run in _whole_ones(store, experiments, condition, part, names, broken)]


def _names(store: Store) -> dict[str, str]:
    """Names of all runs in a SQLite file by id, newest first."""
    database = Path(store.uri.removeprefix(SQLITE))
    with closing(sqlite3.connect(address(database), uri=True)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
        query = "SELECT CAST(run_uuid AS TEXT), CAST(name AS TEXT) FROM runs ORDER BY start_time DESC"
        return {str(run_id): str(name) for run_id, name in connection.execute(query)}


def _defect(run: Run | StoredRun) -> str:
    """Description of the first value of a run with a wrong type or range; empty if all are valid."""
    info, data = run.info, run.data
    texts = {
        "id": info.run_id,
        "name": info.run_name or "",
        "status": info.status,
        "artifact_uri": info.artifact_uri or "",
    }
    texts |= {f"tag {name}": text for name, text in data.tags.items()}
    texts |= {f"parameter {name}": text for name, text in data.params.items()}
    for name in (*data.tags, *data.params, *data.metrics):
        if not isinstance(name, str):
            return f"a tag, parameter or metric of it is named {_short(name)}, which is not text"
    for name, text in texts.items():
        if not isinstance(text, str):
            return f"its {name} is {_short(text)}, which is not text"
    for name, number in data.metrics.items():
        if not isinstance(number, int | float):
            return f"its metric {name} is {_short(number)}, which is not a number"
    start = info.start_time
    if not isinstance(start, int) or not 0 <= start <= LATEST:
        return f"its start_time is {_short(start)}, which is not a time in milliseconds from 1970 to the year 9999"
    return ""


def number(value: object) -> float:
    """Metric value as logged; MLflow stores infinity as the largest float. NaN if the value is not a number."""
    if not isinstance(value, int | float):
        return math.nan
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value


def _short(value: object) -> str:
    return repr(value)[:60]
