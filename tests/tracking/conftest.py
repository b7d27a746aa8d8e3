"""Stores to test with. Creating one takes seconds of migrations: tests get copies of one that is empty."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from seqlab.config.quiet import quiet
from seqlab.tracking.store import Store


@pytest.fixture(autouse=True)
def quiet_alone_and_single_threaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quiet()
    torch.set_num_threads(1)
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
