from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from mlflow.entities import Run, RunData, RunInfo, RunTag

from seqlab.checkpoint_io import AtomicCheckpointIO
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.runs import find_run, search, settle, unfinished_runs
from seqlab.tracking.store import OFFLINE_TAG, Store
from tracking import processes
from tracking.tiny import make_run


def test_a_run_is_found_by_id_beginning_and_name(store: Store) -> None:
    run_id = make_run(store, "lm/gru of Anna's", {"val/loss": [(0, 2.0), (1, 1.5)]}, params={"a": "b"}, tags={"c": "d"})
    make_run(store, "another")
    for text in (run_id, run_id[:20], run_id[:31], "lm/gru of Anna's"):
        run = find_run(text, store)
        assert (run.id, run.name, run.status, run.experiment) == (run_id, "lm/gru of Anna's", "FINISHED", "tests")
        assert (run.metrics, run.params, run.tags["c"]) == ({"val/loss": 1.5}, {"a": "b"}, "d")
    assert run.history("val/loss") == [(0, 2.0), (1, 1.5)]


def test_a_name_that_is_not_unique_is_refused_with_the_candidates(store: Store) -> None:
    ids = [make_run(store, "same", status=status) for status in ("FINISHED", "FAILED")]
    with pytest.raises(ValueError, match="'same' names more than one run") as error:
        find_run("same", store)
    assert f"same ({ids[0][:8]}, FINISHED, tests)" in str(error.value)
    assert f"same ({ids[1][:8]}, FAILED, tests)" in str(error.value)


def test_of_several_runs_of_a_name_the_one_with_a_checkpoint_is_meant(store: Store) -> None:
    for status in ("FAILED", "KILLED"):
        make_run(store, "same", status=status)
    trained = make_run(store, "same", tags={"checkpoint.last": "checkpoints/last.ckpt"})
    make_run(store, "same", status="FAILED")
    assert find_run("same", store).id == trained
    make_run(store, "same", tags={"checkpoint.best": "checkpoints/best.ckpt"})
    with pytest.raises(ValueError, match="'same' names more than one run") as error:
        find_run("same", store)
    assert str(error.value).count("FAILED") == 2 and str(error.value).count("FINISHED") == 2


def test_a_name_that_a_killed_and_a_finished_run_share_means_the_finished_one(store: Store) -> None:
    checkpoint = {"checkpoint.last": "checkpoints/last.ckpt"}
    for status in ("KILLED", "FAILED"):
        make_run(store, "same", tags=checkpoint, status=status)
    with pytest.raises(ValueError, match="'same' names more than one run"):
        find_run("same", store)
    finished = make_run(store, "same", tags=checkpoint)
    assert find_run("same", store).id == finished


def test_a_beginning_that_is_not_unique_is_refused_with_the_candidates(store: Store) -> None:
    beginnings: dict[str, str] = {}
    for number in range(17):  # of which two begin with the same of 16 digits
        run_id = make_run(store, f"run {number}")
        if first := beginnings.get(run_id[0]):
            break
        beginnings[run_id[0]] = run_id
    assert first is not None
    with pytest.raises(ValueError, match=f"'{run_id[0]}' names more than one run") as error:
        find_run(run_id[0], store)
    assert first[:8] in str(error.value) and run_id[:8] in str(error.value)


def test_a_name_is_surer_than_a_beginning(store: Store) -> None:
    run_id = make_run(store, "first")
    named = make_run(store, run_id[:6])
    assert find_run(run_id[:6], store).id == named


@pytest.mark.parametrize("text", ["nobody", "0" * 32, "%", "_", "f_", "'", "\"'", "' OR 1=1 --", "no/such.ckpt", ""])
def test_what_names_no_run_is_refused(store: Store, text: str) -> None:
    make_run(store, "somebody")
    with pytest.raises(ValueError, match="no run has the id, the name or the checkpoint"):
        find_run(text, store)


def test_a_store_that_is_not_there_is_said_so_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there are no runs yet: sqlite:///.*mlruns/mlflow.db does not exist"):
        find_run("x")
    assert unfinished_runs("x", "y") == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_names_its_run(store: Store, tmp_path: Path) -> None:
    run_id = make_run(store, "with checkpoint")
    path = tmp_path / "some.ckpt"
    AtomicCheckpointIO().save_checkpoint({"seqlab": {"run_id": run_id}}, path)
    run = find_run(str(path), store)
    assert run.id == run_id
    assert run.checkpoint == path


def test_a_checkpoint_of_no_run_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "some.ckpt"
    AtomicCheckpointIO().save_checkpoint({"seqlab": {"run_id": None}}, path)
    with pytest.raises(ValueError, match="belongs to no run"):
        find_run(str(path), store)
    AtomicCheckpointIO().save_checkpoint({"seqlab": {"run_id": "0" * 32}}, path)
    with pytest.raises(ValueError, match="no run has"):
        find_run(str(path), store)


@pytest.mark.parametrize("place", ["../../../secret", "/etc/hostname", "checkpoints/../../x"])
def test_what_a_store_names_outside_a_run_is_neither_read_nor_written(store: Store, place: str) -> None:
    run = find_run(make_run(store, "hostile", tags={"checkpoint.best": place}), store)
    with pytest.raises(ValueError, match="which is no file of its folder"):
        _ = run.checkpoint


@pytest.mark.parametrize("tags", [{}, {OFFLINE_TAG: "../x"}])
def test_a_server_names_no_folder_of_this_machine(tags: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    info = RunInfo("x/../.." if not tags else "0" * 32, "1", "me", "RUNNING", 0, 0, "active")
    with pytest.raises(ValueError, match="which is none"):
        Store().artifacts(Run(info, RunData(tags=[RunTag(*tag) for tag in tags.items()])))


def test_a_checkpoint_is_not_executed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "evil.ckpt"
    torch.save({"seqlab": {"run_id": Evil()}}, path)
    with pytest.raises(ValueError):
        find_run(str(path), store)
    assert not Path("evil").exists()


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("evil",)


def test_the_unfinished_runs_of_a_configuration(store: Store) -> None:
    mine = {"config_hash": "h", "checkpoint.last": "checkpoints/last.ckpt"}
    old = make_run(store, "old", tags=mine, status="FAILED")
    new = make_run(store, "new", tags=mine, status="KILLED")
    make_run(store, "done", tags=mine)
    make_run(store, "other config", tags=mine | {"config_hash": "i"}, status="KILLED")
    make_run(store, "without checkpoint", tags={"config_hash": "h"}, status="KILLED")
    make_run(store, "other experiment", tags=mine, status="KILLED", experiment="others")
    make_run(store, "at work", tags=mine | process_tags(), status="RUNNING")
    assert [run.id for run in unfinished_runs("tests", "h", store)] == [new, old]


def test_an_experiment_that_is_not_there_has_no_unfinished_runs(store: Store) -> None:
    assert unfinished_runs("nothing", "h", store) == []
    assert search(store, experiment="nothing") == []


def test_a_run_whose_process_was_killed_outright_is_marked(root: Path) -> None:
    context = processes.context()
    running = context.Event()
    process = context.Process(target=processes.run_for_ever, args=(root, running))
    process.start()
    assert running.wait(120)
    assert find_run("endless", Store(root)).status == "RUNNING", "it is alive"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    run = find_run("endless", Store(root))
    assert run.status == "KILLED"
    assert "the process was gone" in run.tags["failure"]


def test_who_is_marked_killed(store: Store) -> None:
    mine = process_tags()
    runs = {
        "this process": mine,
        "its number, given again": mine | {"process.start": str(float(mine["process.start"]) - 60)},
        "no such number": mine | {"process.id": str(2**22 + 1)},
        "another host": mine | {"process.id": str(2**22 + 1), "host.id": "elsewhere"},
        "no process": {},
    }
    for name, tags in runs.items():
        make_run(store, name, tags=tags, status="RUNNING")
    settle(store)
    killed = {run.name for run in search(store) if run.status == "KILLED"}
    assert killed == {"its number, given again", "no such number"}


def test_any_fit_marks_the_killed_runs_of_its_store(store: Store) -> None:
    make_run(store, "gone", tags=process_tags() | {"process.start": "1.0"}, status="RUNNING")
    RunLogger().begin()
    assert {run.status for run in search(store) if run.name == "gone"} == {"KILLED"}
