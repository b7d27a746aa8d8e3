"""Stores to test with: copies of an empty one, whose migrations take seconds, and of filled ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqlab.config.quiet import quiet
from seqlab.tracking.store import Store
from tracking.fake_server import FakeServer, serving


@pytest.fixture(autouse=True)
def quiet_and_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quiet()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store's database."""
    store = Store(tmp_path_factory.mktemp("template"))
    _ = store.client
    return store.root / "mlflow.db"


@pytest.fixture
def root(tmp_path: Path, template: Path) -> Path:
    """The folder of an empty store, which is also the default one."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    return folder


@pytest.fixture
def store(root: Path) -> Store:
    return Store(root)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Store:
    """An empty store that a module's fixture fills, for tests that only read it."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(template, folder / "mlflow.db")
    return Store(folder)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server, which is the store."""
    fake = FakeServer()
    with serving(fake.serve) as fake.address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", fake.address)
        yield fake
