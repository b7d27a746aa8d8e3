from __future__ import annotations

from pathlib import Path

import pytest

from seqlab.tracking.server import ui, ui_command
from seqlab.tracking.store import Store


def test_the_pages_are_of_this_store_and_for_this_machine_only(store: Store) -> None:
    command = ui_command(store, 5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"
    assert command[command.index("--backend-store-uri") + 1] == store.uri


def test_without_runs_there_is_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no runs yet"):
        ui()
    assert list(tmp_path.iterdir()) == []


def test_a_server_has_its_own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    with pytest.raises(ValueError, match="open http://tracking:5000 in a browser"):
        ui()
