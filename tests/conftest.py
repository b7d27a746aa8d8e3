"""One thread everywhere (two fight for two busy cores) and one seed for every test's draws, unless the environment says
others, each day's share of the slow ones, and the device that some need."""

from __future__ import annotations

import logging
import os
import shutil
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import lightning  # noqa: F401  # before any test: a fit says on stderr that it loads it
import pytest
import torch
from hypothesis import settings

from once import SEED, once
from seqlab.tracking import store

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

# A capture writes thousands of records there for pytest to keep.
logging.getLogger("torch.__trace").setLevel(logging.WARNING)

THREADS = os.environ.get("SEQLAB_TEST_THREADS", "1")
torch.set_num_threads(int(THREADS))
os.environ["OMP_NUM_THREADS"] = THREADS  # for the processes that tests start

settings.register_profile("seqlab", derandomize=True, database=None, deadline=None)
settings.load_profile("seqlab")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(SEED)


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Gives each session its own cache and state: no test finds another run's tokens or unsent writes."""
    os.environ["SEQLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["SEQLAB_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def _migrations_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """MLflow's migrations take seconds: every new store begins as a copy of the tables that one of them made."""
    create = store._create_database

    def migrated(folder: Path) -> Path:
        create(folder / "mlflow.db")
        return folder / "mlflow.db"

    def created(path: Path) -> None:
        from mlflow.store.db import utils

        def copy_tables(engine: Engine) -> None:
            engine.dispose()
            shutil.copyfile(template, str(engine.url.database))

        template = once("empty store", migrated, tmp_path_factory)
        with patch.object(utils, "_initialize_tables", copy_tables):
            create(path)

    store._create_database = created


SLOW_SHARES = 4
"""CI runs one of so many shares of the slow tests, another every day."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    today = datetime.now(UTC).toordinal() % SLOW_SHARES
    for item in items:
        if item.get_closest_marker("slow") and zlib.crc32(item.nodeid.encode()) % SLOW_SHARES == today:
            item.add_marker(pytest.mark.today)
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="not run: no CUDA device"))
