from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from seqlab.cli import main
from seqlab.tracking.runs import PARENT_TAG, SWEEP_TAG
from seqlab.tracking.server import VIEW_TAG, check_port, run_pages, ui, ui_command
from seqlab.tracking.store import Store
from tracking.tiny import make_run


def test_the_pages_are_of_this_store_and_for_this_machine_only(store: Store) -> None:
    command = ui_command(store, 5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"
    assert command[command.index("--backend-store-uri") + 1] == store.uri
    assert "--app-dir=" in command[command.index("--uvicorn-opts") + 1], "uvicorn's own is the working folder"


def test_a_page_of_runs_shows_their_validation(store: Store) -> None:
    make_run(store, "a", experiment="plain")
    for _ in range(2):
        pages = run_pages(store)
        with store.calls() as client:
            (experiment,) = [found for found in client.search_experiments() if found.name == "plain"]
            view = json.loads(experiment.tags["mlflow.sharedViewState.seqlab"])
            # Who overrides the view in MLflow's page keeps theirs.
            overridden = json.dumps(view | {"orderByAsc": False})
            client.set_experiment_tag(experiment.experiment_id, f"{VIEW_TAG}seqlab", overridden)
        assert pages == {"plain": f"#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=seqlab"}
        assert view["orderByKey"] == "metrics.`val/loss`" and view["orderByKey"] in view["selectedColumns"]
    assert not view["orderByAsc"]


def test_sweeps_have_a_page_by_time_on_which_mlflow_nests_their_fits(store: Store) -> None:
    parent = make_run(store, "sweep", experiment="tune", tags={SWEEP_TAG: "1"})
    make_run(store, "fit", experiment="tune", tags={PARENT_TAG: parent})
    assert list(pages := run_pages(store)) == ["tune", "tune, its sweeps"]
    assert pages["tune, its sweeps"].endswith("runs?viewStateShareKey=seqlab-sweeps")
    with store.calls() as client:
        (tags,) = [found.tags for found in client.search_experiments() if found.name == "tune"]
    assert json.loads(tags["mlflow.sharedViewState.seqlab-sweeps"])["orderByKey"] == "attributes.start_time"


def test_without_runs_there_is_nothing_to_show_and_a_server_has_its_own_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="there are no runs yet"):
        ui(5000)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    with pytest.raises(ValueError, match="open http://tracking:5000 in a browser"):
        ui(5000)


@pytest.mark.usefixtures("store")
def test_a_port_that_is_none_or_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for port in ("-1", "0", "65536", "99999"):
        assert main(["ui", "--port", port]) == 2
        assert capsys.readouterr().err == f"seqlab: --port must be from 1 to 65535, got {port}\n"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken = listener.getsockname()[1]
        listener.listen()
        assert main(["ui", "--port", str(taken)]) == 2
    said = f"seqlab: --port {taken} cannot be used: Address already in use; give another port\n"
    assert capsys.readouterr().err == said
    check_port(taken)
