from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from once import once
from scale.cases import DRAWS, OF_RANKS, PLAIN
from scale.kinds import write_files
from scale.on_ranks import on_ranks


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of two ranks in the plain cases."""
    return once("two ranks, plain", _found(2, PLAIN), tmp_path_factory)


@pytest.fixture(scope="session")
def all_of_two(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    return once("two ranks", _found(2, _asked(2, request)), tmp_path_factory)


@pytest.fixture(scope="session")
def all_of_four(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Any]:
    return once("four ranks", _found(4, _asked(4, request)), tmp_path_factory)


def _asked(num_ranks: int, request: pytest.FixtureRequest) -> list[str]:
    """The cases of the tests that are run, of which CI has a share, and those that others are compared with."""
    given = [getattr(item, "callspec", None) for item in request.session.items]
    asked = [one.params.get("case", "") for one in given if one is not None and one.params.get("ranks") == num_ranks]
    asked += [f"{name}, ddp" for name in DRAWS]
    return sorted({name for name in asked if name.rpartition(", ")[2] in OF_RANKS[num_ranks]})


def _found(num_ranks: int, cases: list[str]) -> Callable[[Path], dict[str, Any]]:
    """Returns a function that runs the cases on so many ranks in a folder, by one torchrun."""

    def find(folder: Path) -> dict[str, Any]:
        write_files(folder)
        return on_ranks(num_ranks, folder, cases, timeout=3600)

    return find
