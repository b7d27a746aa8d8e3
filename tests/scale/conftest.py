from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from scale.cases import DRAWS, OF_RANKS, PLAIN
from scale.kinds import write_files
from scale.on_ranks import on_ranks


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What two ranks find in the plain cases."""
    return _once("plain", 2, PLAIN, tmp_path_factory, request)


@pytest.fixture(scope="session")
def all_of_two(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    return _once("two", 2, _asked(2, request), tmp_path_factory, request)


@pytest.fixture(scope="session")
def all_of_four(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    return _once("four", 4, _asked(4, request), tmp_path_factory, request)


def _asked(num_ranks: int, request: pytest.FixtureRequest) -> list[str]:
    """The cases of the tests that are run, of which CI has a share, and those that others are compared with."""
    given = [getattr(item, "callspec", None) for item in request.session.items]
    asked = [one.params.get("case", "") for one in given if one is not None and one.params.get("ranks") == num_ranks]
    asked += [f"{name}, ddp" for name in DRAWS]
    return sorted({name for name in asked if name.rpartition(", ")[2] in OF_RANKS[num_ranks]})


def _once(
    name: str,
    num_ranks: int,
    cases: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, Any]:
    """What so many ranks find: one torchrun, whichever of pytest's workers comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / f"ranks-{name}"
    with FileLock(str(folder) + ".lock"):
        if not (done := folder / "done").exists():
            folder.mkdir()
            write_files(folder)
            done.write_text(json.dumps(on_ranks(num_ranks, folder, cases, timeout=3600)))
    found: dict[str, Any] = json.loads(done.read_text())
    return found
