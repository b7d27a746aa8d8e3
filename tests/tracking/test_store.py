"""The store: its place, what is refused in its place, moves and copies of it, and draws and processes beside it."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqlab.tracking import store as store_module
from seqlab.tracking.aside import aside
from seqlab.tracking.runs import find_run, search, unfinished_runs
from seqlab.tracking.store import Store
from tracking.tiny import make_run

PROCESSES = 6


@pytest.mark.parametrize(
    ("named", "uri", "root"),
    [
        (None, "sqlite:///{here}/mlruns/mlflow.db", "mlruns"),
        ("sqlite:///elsewhere/runs.db", "sqlite:///{here}/elsewhere/runs.db", "elsewhere"),
        ("http://tracking:5000/", "http://tracking:5000", "mlruns"),
    ],
)
def test_the_default_store_is_in_mlruns_and_the_environment_names_another(
    named: str | None, uri: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
    store = Store()
    assert (store.uri, store.root) == (uri.format(here=tmp_path), tmp_path / root), "its artifacts beside it"
    assert store.remote == store.exists == uri.startswith("http")


def test_a_folder_without_a_database_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "README.md").write_text("as in the repository")
    with pytest.raises(ValueError, match=r"there are no runs yet: sqlite:///.*mlflow\.db does not exist"):
        find_run("x")
    assert search(Store()) == unfinished_runs("x", "y") == [] and not Store().exists
    assert [path.name for path in (tmp_path / "mlruns").iterdir()] == ["README.md"]


@pytest.mark.parametrize("uri", ["file:///runs", "mlruns", "sqlite:///", "sqlite://", "postgresql://x/y"])
def test_other_stores_are_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match="accepted: sqlite:///PATH, http://HOST:PORT"):
        Store()


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "mlflow.db").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"the tracking store .*mlflow\.db is a folder; accepted: a regular file"):
        Store()


def test_a_store_may_lie_in_a_folder_of_any_name(root: Path) -> None:
    folder = root.rename(root.with_name("a b ç#1 名"))
    run = find_run(make_run(Store(folder), "x"), Store(folder))
    assert run.artifacts.is_relative_to(folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("name", ["100%", "a%20b", "what?"])
def test_but_not_of_one_that_mlflow_would_take_for_another(name: str) -> None:
    with pytest.raises(ValueError, match="MLflow takes no path with % or"):
        Store(name)


def test_experiments_of_any_name_keep_their_artifacts_in_the_store(store: Store) -> None:
    for name in ("plain", "../../up", "mlflow.db", "ä/ö ü", "."):
        folder = store.folder(name)
        run = find_run(make_run(store, "x", experiment=name), store)
        assert run.experiment == name
        assert run.artifacts.parents[1] == folder == store.folder(name), "MLflow is not asked for it"
        assert run.artifacts.parts[: len(store.root.parts)] == store.root.parts
        assert ".." not in run.artifacts.parts
        run.artifacts.mkdir(parents=True)


def test_a_store_can_be_copied_and_moved(store: Store, tmp_path: Path) -> None:
    run = find_run(make_run(store, "old", experiment="x"), store)
    run.artifacts.mkdir(parents=True)
    (run.artifacts / "config.yaml").write_text("a: 1")
    copied = Store(shutil.copytree(store.root, tmp_path / "copied"))
    new = find_run(make_run(copied, "new", experiment="x"), copied)
    assert new.artifacts.parents[1] == copied.folder("x") == tmp_path / "copied" / "x"
    assert find_run("old", copied).artifacts.is_relative_to(tmp_path / "copied"), "beside the new one"
    shutil.move(store.root, tmp_path / "moved")
    moved = find_run(run.id, Store(tmp_path / "moved"))
    assert moved.config == {"a": 1}
    assert moved.artifacts.parents[1] == moved.store.folder("x")


def drawn() -> tuple[float, float]:
    return random.random(), np.random.random()


def seed() -> None:
    random.seed(0)
    np.random.seed(0)


def test_mlflow_draws_from_nobody(store: Store) -> None:
    seed()
    expected = drawn()
    names = set()
    for _ in range(2):
        seed()
        names.add(find_run(make_run(store, ""), store).name)
        assert drawn() == expected
    assert len(names) == 2, "runs of one seed have names of their own"
    seed()
    with pytest.raises(KeyError), aside():
        drawn()
        raise KeyError
    assert drawn() == expected, "after an error too"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_six_processes_open_a_missing_store_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take its time to put a new file in the store's place."""

    def slow(*names: Any) -> None:
        time.sleep(0.1)
        replace(*names)

    def run(number: int) -> None:
        barrier.wait()
        make_run(Store(root), f"run {number}", {"x": [(0, number)]}, experiment="race")

    (root / "mlflow.db").unlink()
    replace = os.replace
    forks = multiprocessing.get_context("fork")
    barrier = forks.Barrier(PROCESSES)
    monkeypatch.setattr(store_module, "os", type("Slow", (), {"replace": slow, "environ": os.environ}))
    writers = [forks.Process(target=run, args=(number,)) for number in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * PROCESSES
    runs = search(Store(root), experiment="race")
    assert {run.name: run.metrics["x"] for run in runs} == {f"run {i}": i for i in range(PROCESSES)}
    assert not list(root.glob("*.partial*"))
