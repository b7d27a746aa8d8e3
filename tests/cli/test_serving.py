"""A run is exported, promoted and served, each as typed; an export asks no store."""

from __future__ import annotations

import json
import os
import shlex
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Seqlab
from cli.hostile import CANARY, write_traps
from export.planted import HOSTILE
from servers import free_port, running

pytestmark = pytest.mark.slow


@contextmanager
def served(command: str, folder: Path) -> Iterator[str]:
    """The address of a model server that a printed command starts."""
    assignment, *words = shlex.split(command)
    name, _, value = assignment.partition("=")
    bin_folder = Path(sys.executable).parent
    port = free_port()
    typed: list[str | Path] = [bin_folder / words[0], *words[1:], "--host", "127.0.0.1", "--port", str(port)]
    path = f"{bin_folder}:{os.environ['PATH']}"
    environment = {**os.environ, name: value, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
    address = f"http://127.0.0.1:{port}"
    with running(typed, environment, f"{address}/ping", folder):
        yield address


def ask(address: str, request: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    sent = urllib.request.Request(f"{address}/invocations", json.dumps(request).encode(), headers)
    with urllib.request.urlopen(sent) as answer:
        return json.load(answer)["predictions"]


def test_the_champion_answers_text_with_text(fitted: tuple[Path, Seqlab], tmp_path: Path) -> None:
    _, seqlab = fitted
    seqlab("export", "first", "--out", str(tmp_path / "bundle"))
    command = seqlab("promote", str(tmp_path / "bundle")).stdout.strip().partition(" · next: ")[2]
    options = {"max_new_tokens": 20, "temperature": 0.8, "seed": 7}
    typed = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    prompts = ["the ", "quick brown "]
    expected = [seqlab("generate", str(tmp_path / "bundle"), "--prompt", prompt, *typed).stdout for prompt in prompts]
    with served(command, tmp_path) as address:
        answers = ask(address, {"inputs": prompts, "params": options})
        as_table = ask(address, {"dataframe_records": [{"text": prompts[1]}], "params": options})
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(address, {"inputs": prompts, "params": {"temperature": -1.0}})
        told = json.load(refused.value)
    assert [answer["text"] + "\n" for answer in answers] == expected
    assert as_table == answers[1:]
    assert told["message"].endswith("Error: temperature must be at least 0 and finite, got -1.0")
    assert "stack_trace" not in told


def test_a_hostile_bundle_is_not_served(fitted: tuple[Path, Seqlab], tmp_path: Path) -> None:
    home, seqlab = fitted
    seqlab("export", "first", "--out", str(tmp_path / "bundle"))
    command = seqlab("promote", str(tmp_path / "bundle")).stdout.strip().partition(" · next: ")[2]
    model = max(home.glob("mlruns/tiny/*/artifacts/models/*"), key=lambda path: path.stat().st_mtime_ns)
    HOSTILE["tokenizer evil.Evil"](model / "data" / "bundle")
    write_traps(tmp_path)
    with pytest.raises(AssertionError, match=r"unknown tokenizer class 'evil\.Evil'"), served(command, tmp_path):
        pass
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("store", ["http://127.0.0.1:1", "sqlite:///elsewhere/mlflow.db"])
def test_a_checkpoint_is_exported_whatever_the_store(store: str, fitted: tuple[Path, Seqlab], tmp_path: Path) -> None:
    folder, seqlab = fitted
    (checkpoint,) = folder.glob("mlruns/*/*/artifacts/checkpoints/best.ckpt")
    done = seqlab("export", str(checkpoint), "--out", str(tmp_path / "bundle"), MLFLOW_TRACKING_URI=store)
    assert "next: seqlab generate" in done.stdout and not done.stderr
    assert not (folder / "elsewhere").exists()
    seqlab("verify", str(tmp_path / "bundle"))
    said = seqlab("promote", str(tmp_path / "bundle"), MLFLOW_TRACKING_URI=store, code=2).stderr
    assert "does not answer" in said or "there are no runs yet" in said


def test_a_model_repository_is_written_whole_and_where_nothing_is(fitted: tuple[Path, Seqlab], tmp_path: Path) -> None:
    _, seqlab = fitted
    models = tmp_path / "new" / "models"
    done = seqlab(
        "export", "first", "--format", "triton", "--precision", "int8", "--target", "ort", "--out", str(models)
    )
    assert f"Model repository {models} · next: tritonserver --model-repository={models}\n" in done.stdout
    assert {path.name for path in models.iterdir()} == {"tiny", "tiny_tokenizer", "tiny_model", "tiny_detokenizer"}
    assert 'name: "tiny"\n' in (models / "tiny" / "config.pbtxt").read_text()
    assert "ok" in seqlab("verify", str(models / "tiny_model" / "1" / "bundle")).stdout
    assert [path.name for path in models.parent.iterdir()] == ["models"]
    again = seqlab("export", "first", "--format", "triton", "--out", str(models), code=2).stderr
    assert again == f"seqlab: {models} exists and is not an empty folder; give a new one\n"
