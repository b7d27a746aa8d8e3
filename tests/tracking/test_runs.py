"""Runs by id, name, checkpoint and configuration, and those whose process is gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow.entities import Run, RunData, RunInfo, RunTag

from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.runs import find_run, search, settle, unfinished_runs
from seqlab.tracking.store import OFFLINE_TAG, Store
from tracking.tiny import make_run

LAST = {"checkpoint.last": "checkpoints/last.ckpt"}


def several(text: str) -> Any:
    return pytest.raises(ValueError, match=f"'{text}' names more than one run")


def test_a_run_is_found_by_id_beginning_and_name(store: Store) -> None:
    run_id = make_run(store, "lm/gru of Anna's", {"val/loss": [(0, 2.0), (1, 1.5)]}, params={"a": "b"}, tags={"c": "d"})
    named = make_run(store, run_id[:6])
    for text in (run_id, run_id[:20], run_id[:31], "lm/gru of Anna's"):
        run = find_run(text, store)
        assert (run.id, run.name, run.status, run.experiment) == (run_id, "lm/gru of Anna's", "FINISHED", "tests")
        assert (run.metrics, run.params, run.tags["c"]) == ({"val/loss": 1.5}, {"a": "b"}, "d")
    assert run.history("val/loss") == [(0, 2.0), (1, 1.5)]
    assert find_run(run_id[:6], store).id == named, "a name is surer than a beginning"


def test_of_several_runs_of_a_name_the_one_that_is_meant(store: Store) -> None:
    """The one with a checkpoint or, of several with one, the only one that finished; else the candidates are told."""
    ids = [make_run(store, "same", status=status) for status in ("FINISHED", "FAILED")]
    with several("same") as error:
        find_run("same", store)
    assert f"same ({ids[0][:8]}, FINISHED, tests)" in str(error.value)
    assert f"same ({ids[1][:8]}, FAILED, tests)" in str(error.value)
    killed = make_run(store, "same", tags=LAST, status="KILLED")
    assert find_run("same", store).id == killed
    make_run(store, "same", tags=LAST, status="FAILED")
    with several("same"):
        find_run("same", store)
    finished = make_run(store, "same", tags={"checkpoint.best": "checkpoints/best.ckpt"})
    assert find_run("same", store).id == finished
    make_run(store, "same", tags=LAST)
    with several("same") as error:
        find_run("same", store)
    assert [str(error.value).count(status) for status in ("FINISHED", "FAILED", "KILLED")] == [3, 2, 1]


def test_what_names_no_run_is_refused(store: Store) -> None:
    make_run(store, "somebody")
    for text in ("nobody", "0" * 32, "%", "_", "f_", "'", "\"'", "' OR 1=1 --", "no/such.ckpt", ""):
        with pytest.raises(ValueError, match="no run has the id, the name or the checkpoint"):
            find_run(text, store)
    assert unfinished_runs("nothing", "h", store) == search(store, experiment="nothing") == []


def test_a_checkpoint_names_its_run(store: Store, tmp_path: Path) -> None:
    run_id, path = make_run(store, "with checkpoint"), tmp_path / "some.ckpt"
    for stored, why in ((run_id, ""), (None, "belongs to no run"), ("0" * 32, "no run has")):
        AtomicCheckpointIO().save_checkpoint({"seqlab": {"run_id": stored}}, path)
        if not why:
            run = find_run(str(path), store)
            assert (run.id, run.checkpoint) == (run_id, path)
            continue
        with pytest.raises(ValueError, match=why):
            find_run(str(path), store)


@pytest.mark.parametrize(("run_id", "tags"), [("x/../..", []), ("0" * 32, [RunTag(OFFLINE_TAG, "../x")])])
def test_a_server_names_no_folder_of_this_machine(
    run_id: str, tags: list[RunTag], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    with pytest.raises(ValueError, match="the invalid id"):
        Store().artifacts(Run(RunInfo(run_id, "1", "me", "RUNNING", 0, 0, "active"), RunData(tags=tags)))


def test_the_unfinished_runs_of_a_configuration(store: Store) -> None:
    mine = {"config_hash": "h", **LAST}
    old = make_run(store, "old", tags=mine, status="FAILED")
    new = make_run(store, "new", tags=mine, status="KILLED")
    make_run(store, "done", tags=mine)
    make_run(store, "other config", tags=mine | {"config_hash": "i"}, status="KILLED")
    make_run(store, "without checkpoint", tags={"config_hash": "h"}, status="KILLED")
    make_run(store, "other experiment", tags=mine, status="KILLED", experiment="others")
    make_run(store, "at work", tags=mine | process_tags(), status="RUNNING")
    assert [run.id for run in unfinished_runs("tests", "h", store)] == [new, old]


def test_who_is_marked_killed_by_a_command_that_writes_and_by_any_fit(store: Store) -> None:
    mine = process_tags()
    parent = psutil.Process(os.getppid())
    numbers = {"text": "none", "nothing": "", "negative": "-1", "too large": "9" * 30, "none such": str(2**22 + 1)}
    runs = {
        **{name: mine | {"process.id": number} for name, number in numbers.items()},
        "no start": {"host.id": mine["host.id"], "process.id": "1"},
        "this process": mine,
        "another": mine | {"process.id": str(parent.pid), "process.start": str(parent.create_time())},
        "its number, given again": mine | {"process.start": str(float(mine["process.start"]) - 60)},
        "another host": mine | {"process.id": str(2**22 + 1), "host.id": "elsewhere"},
        "no process": {},
    }
    for name, tags in runs.items():
        make_run(store, name, tags=tags, status="RUNNING")
    settle(store)

    def killed() -> set[str]:
        """Names of the runs that the store says were killed."""
        return {run.name for run in search(store) if run.entity.info.status == "KILLED"}

    assert killed() == (gone := {"its number, given again", "none such", "too large"})
    make_run(store, "later", tags=mine | {"process.start": "1.0"}, status="RUNNING")
    RunLogger().begin()
    assert killed() == gone | {"later"}
