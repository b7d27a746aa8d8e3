from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from scale.cases import CASES, OF_RANKS, PLAIN
from scale.kinds import write_files
from scale.on_ranks import on_ranks


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What two ranks find in the plain cases: one torchrun, whichever of pytest's workers comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "two-ranks"
    with FileLock(str(folder) + ".lock"):
        if not (done := folder / "done").exists():
            folder.mkdir()
            write_files(folder)
            done.write_text(json.dumps(on_ranks(2, folder, PLAIN)))
    found: dict[str, Any] = json.loads(done.read_text())
    return found


@pytest.fixture(scope="session")
def all_of_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _all(2, tmp_path_factory)


@pytest.fixture(scope="session")
def all_of_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _all(4, tmp_path_factory)


def _all(num_ranks: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("all")
    write_files(folder)
    names = [name for name in CASES if name.rpartition(", ")[2] in OF_RANKS[num_ranks]]
    return on_ranks(num_ranks, folder, names, timeout=3600)
