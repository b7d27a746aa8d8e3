"""Lightning's advice for longer fits, and what it uses of torch that is deprecated, fail no test of a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from scale.kinds import write_files

HARMLESS = ("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning", "ignore:.*LeafSpec.*:FutureWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in HARMLESS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files of `kinds`."""
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder
