"""Versions of a registered model, and its champion."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from mlflow.exceptions import MlflowException

from seqlab.tracking import registry
from seqlab.tracking.registry import model_name, promote, register
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store, UnreachableError
from tracking.tiny import make_run


def save(folder: Path) -> None:
    folder.mkdir()
    (folder / "MLmodel").write_text("flavors: {}\n")


def test_each_bundle_is_a_version_whose_files_are_in_its_run(store: Store) -> None:
    run, other = (find_run(make_run(store, name), store) for name in ("a", "b"))
    bundles = [(run, "fp32", "portable", "a"), (other, "fp32", "portable", "b"), (run, "int8", "ort", "c")]
    versions = [register(*bundle, save) for bundle in bundles]
    assert [(version.model, version.number) for version in versions] == [("tests", 1), ("tests", 2), ("tests", 3)]
    assert [str(version) for version in versions[1:]] == ["version 2 (b, fp32, portable)", "version 3 (a, int8, ort)"]
    assert sorted(path.name[:4] for path in (run.artifacts / "models").iterdir()) == ["fp32", "int8"]
    assert all((path / "MLmodel").is_file() for path in (run.artifacts / "models").iterdir())
    with store.calls() as client:
        stored = {int(version.version): version for version in client.search_model_versions("name = 'tests'")}
        assert {number: version.run_id for number, version in stored.items()} == {1: run.id, 2: other.id, 3: run.id}
        assert stored[3].tags == {"precision": "int8", "target": "ort", "run": "a", "seal": "c"}
        assert Path(client.download_artifacts(run.id, stored[1].source.partition(f"{run.id}/")[2])).is_dir()


def test_the_champion_is_the_newest_version_of_the_run_or_the_one_that_is_meant(store: Store) -> None:
    """Two bundles of one precision do not share files, and one is a version once."""
    run, other, bare = (find_run(make_run(store, name), store) for name in ("a", "b", "bare"))
    first, second, again = (register(run, "fp32", "portable", seal, save) for seal in ("a", "b", "a"))
    assert len(list((run.artifacts / "models").iterdir())) == 2
    assert again == first != second
    assert promote(run) == (None, second) and promote(run, again) == (second, first)
    of_other, newest = register(other, "fp32", "portable", "b", save), register(run, "int8", "ort", "c", save)
    assert promote(other) == (first, of_other)
    assert promote(run) == (of_other, newest)
    assert newest.uri == "models:/tests@champion"
    with store.calls() as client:
        assert int(client.get_model_version_by_alias("tests", "champion").version) == newest.number
    with pytest.raises(ValueError, match="run bare has no version of tests; promote a bundle of it: seqlab"):
        promote(bare)


def test_models_of_two_experiments_are_two(store: Store) -> None:
    here, there = (find_run(make_run(store, name, experiment=f"of {name}/x"), store) for name in ("a", "b"))
    register(here, "fp32", "portable", "a", save)
    assert register(there, "fp32", "portable", "a", save)[:2] == ("of b-x", 1)
    assert promote(here)[1].model == "of a-x"


def test_a_model_is_named_as_its_experiment(store: Store) -> None:
    names = {"lm/gru: one": "lm-gru- one", "..": "experiment", "/": "-", "plain": "plain"}
    for experiment, name in names.items():
        assert model_name(experiment) == name
        with store.calls() as client:
            client.create_registered_model(name)


def test_a_failed_save_leaves_nothing_and_a_server_that_is_gone_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = find_run(make_run(store, "a"), store)

    def fail(folder: Path) -> None:
        folder.mkdir()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        register(run, "fp32", "portable", "a", fail)
    with store.calls() as client:
        assert not client.search_registered_models()
    assert not (run.artifacts / "models").exists()
    gone = MlflowException("nobody there", error_code=1)  # INTERNAL_ERROR
    monkeypatch.setattr(registry, "_create_model", Mock(side_effect=gone))
    with pytest.raises(UnreachableError, match="does not answer: nobody there"):
        register(run, "fp32", "portable", "a", save)
