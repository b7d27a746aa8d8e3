from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from seqlab.tracking.aside import aside
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store
from tracking import processes
from tracking.tiny import make_run

PROCESSES = 6


def test_the_default_store_is_in_mlruns(tmp_path: Path) -> None:
    store = Store()
    assert store.uri == f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    assert store.root == tmp_path / "mlruns"
    assert not store.remote
    assert not store.exists


def test_a_folder_without_a_database_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "README.md").write_text("as in the repository")
    with pytest.raises(ValueError, match=r"there are no runs yet: sqlite:///.*mlflow\.db does not exist"):
        find_run("x")
    assert search(Store()) == [] and not Store().exists
    assert [path.name for path in (tmp_path / "mlruns").iterdir()] == ["README.md"]


def test_the_environment_names_another_file_with_its_artifacts_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///elsewhere/runs.db")
    store = Store("ignored")
    assert store.uri == f"sqlite:///{tmp_path}/elsewhere/runs.db"
    assert store.root == tmp_path / "elsewhere"


def test_the_environment_names_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000/")
    store = Store()
    assert (store.uri, store.root, store.remote) == ("http://tracking:5000", tmp_path / "mlruns", True)


@pytest.mark.parametrize("uri", ["file:///runs", "mlruns", "sqlite:///", "sqlite://", "postgresql://x/y"])
def test_other_stores_are_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match="accepted: sqlite:///PATH, http://HOST:PORT"):
        Store()


def test_something_else_than_a_store_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mlruns").mkdir()
    file = tmp_path / "mlruns" / "mlflow.db"
    file.write_text("my diary, which is not a database" * 10)
    with pytest.raises(ValueError, match="cannot be opened"):
        _ = Store().client
    assert file.read_text().startswith("my diary")


def test_a_folder_in_its_place_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "mlflow.db").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"the tracking store .*mlflow\.db is a folder; accepted: a regular file"):
        Store()


def test_a_store_may_lie_in_a_folder_of_any_name(tmp_path: Path, template: Path) -> None:
    folder = tmp_path / "a b ç#1 名"
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    run = find_run(make_run(Store(folder), "x"), Store(folder))
    assert run.artifacts.is_relative_to(folder)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


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


def test_a_store_can_be_moved(store: Store, tmp_path: Path) -> None:
    run = find_run(make_run(store, "moving", experiment="x"), store)
    run.artifacts.mkdir(parents=True)
    (run.artifacts / "config.yaml").write_text("a: 1")
    shutil.move(store.root, tmp_path / "moved")
    moved = find_run(run.id, Store(tmp_path / "moved"))
    assert moved.config == {"a": 1}
    assert moved.artifacts.parents[1] == moved.store.folder("x")


def test_a_copied_store_takes_new_runs_beside_the_first(store: Store, tmp_path: Path) -> None:
    find_run(make_run(store, "old", experiment="x"), store).artifacts.mkdir(parents=True)
    copied = Store(shutil.copytree(store.root, tmp_path / "copied"))
    new = find_run(make_run(copied, "new", experiment="x"), copied)
    assert new.artifacts.parents[1] == copied.folder("x") == tmp_path / "copied" / "x"
    assert find_run("old", copied).artifacts.is_relative_to(tmp_path / "copied")


def test_mlflow_draws_from_nobody(store: Store) -> None:
    names = set()
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        names.add(find_run(make_run(store, ""), store).name)
        drawn = random.random(), np.random.random()
        random.seed(0)
        np.random.seed(0)
        assert drawn == (random.random(), np.random.random())
    assert len(names) == 2, "runs of one seed have names of their own"


def test_the_generators_are_restored_after_an_error() -> None:
    random.seed(0)
    np.random.seed(0)
    expected = random.random(), np.random.random()
    random.seed(0)
    np.random.seed(0)
    with pytest.raises(KeyError), aside():
        random.random()
        np.random.random()
        raise KeyError
    assert (random.random(), np.random.random()) == expected


def test_six_processes_open_a_missing_store_at_once(tmp_path: Path) -> None:
    context = processes.context()
    barrier = context.Barrier(PROCESSES)
    root = tmp_path / "mlruns"
    writers = [context.Process(target=processes.make_run, args=(root, barrier, i)) for i in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * PROCESSES
    runs = search(Store(root), experiment="race")
    assert {run.name: run.metrics["x"] for run in runs} == {f"run {i}": i for i in range(PROCESSES)}
    assert not list(root.glob("*.partial*"))
