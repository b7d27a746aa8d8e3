from __future__ import annotations

from pathlib import Path

import pytest

from scale.kinds import write_files


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files of `kinds`."""
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder
