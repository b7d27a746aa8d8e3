"""A run is proven, shown in pages, promoted and served, each as typed; an export asks no store."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Seqlab, command
from seqlab_export.page.html import LOOK_INSIDE, TEMPLATE, TRY_IT
from servers import free_port, running

PROGRESS = re.compile(r" \d+/\d+ · \d+ s$")
"""Line of a phase: printed where a machine takes more than two seconds to a phase."""

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of torch's exporter


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


def test_the_champion_answers_text_with_text(beside_first: Seqlab, tmp_path: Path) -> None:
    seqlab = beside_first
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


@pytest.mark.parametrize("store", ["http://127.0.0.1:1", "sqlite:///elsewhere/mlflow.db"])
def test_a_checkpoint_is_exported_whatever_the_store(
    store: str, fitted: Path, beside_first: Seqlab, tmp_path: Path
) -> None:
    seqlab = beside_first
    (checkpoint,) = fitted.glob("mlruns/*/*/artifacts/checkpoints/best.ckpt")
    done = seqlab("export", str(checkpoint), "--out", str(tmp_path / "bundle"), MLFLOW_TRACKING_URI=store)
    unexpected = [line for line in done.stderr.splitlines() if not PROGRESS.search(line)]
    assert "next: seqlab generate" in done.stdout and not unexpected
    assert not (fitted / "elsewhere").exists()
    seqlab("verify", str(tmp_path / "bundle"))
    said = seqlab("promote", str(tmp_path / "bundle"), code=2).stderr
    assert "does not answer" in said or "there are no runs yet" in said


def test_a_model_repository_is_written_whole_and_where_nothing_is(beside_first: Seqlab, tmp_path: Path) -> None:
    seqlab = beside_first
    models = tmp_path / "new" / "models"
    export = ("export", "first", "--format", "triton", "--out", str(models))
    done = seqlab(*export, "--precision", "int8", "--target", "ort")
    assert f"Model repository {models} · next: tritonserver --model-repository={models}\n" in done.stdout
    assert {path.name for path in models.iterdir()} == {"tiny", "tiny_tokenizer", "tiny_model", "tiny_detokenizer"}
    assert re.search(r"Validation loss \d\.\d{4} before, \d\.\d{4} after: [+-]0\.\d+ ± 0\.\d+", done.stdout)
    provenance = json.loads((models / "tiny_model" / "1" / "bundle" / "manifest.json").read_text())["provenance"]
    assert 0 < provenance["validation_loss_interval"] < provenance["bundle_validation_loss"]
    assert 'name: "tiny"\n' in (models / "tiny" / "config.pbtxt").read_text()
    assert "ok" in seqlab("verify", str(models / "tiny_model" / "1" / "bundle")).stdout
    assert [path.name for path in models.parent.iterdir()] == ["models"]
    assert seqlab(*export, code=2).stderr == f"seqlab: {models} exists and is not an empty folder; give a new one\n"


@pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web")
def test_each_verb_writes_a_page_that_knows_its_run(beside_first: Seqlab, tmp_path: Path) -> None:
    seqlab = beside_first
    of_run, of_bundle, within = (tmp_path / f"{name}.html" for name in ("run", "bundle", "inside"))
    bundle = str(tmp_path / "bundle")
    seqlab("export", "first", "--format", "html", "--out", str(of_run))
    seqlab("export", "first", "--out", bundle)
    seqlab("page", bundle, "--out", str(of_bundle))
    seqlab("inspect", "first", "--text", "the <fox>", "--out", str(within))
    for page, tab, text in ((of_run, TRY_IT, ""), (of_bundle, TRY_IT, ""), (within, LOOK_INSIDE, "the <fox>")):
        written = page.read_text("utf-8")
        (content,) = re.findall(r'<script type="application/json" id="page">(.*?)</script>', written)
        told = json.loads(content)
        assert (told["tab"], told["text"]) == (tab, text)
        (about,) = told["bundles"]
        assert about["name"] == about["run"]["name"] == "first" and about["run"]["data"]
        assert "val/loss" in {curve["name"] for curve in about["run"]["curves"]}
        paths = re.findall(r'data-bundle="0" data-path="([^"]*)"', written)
        assert ("taps.onnx" in paths) == (page == within)
    refused = seqlab("inspect", bundle, "--out", str(tmp_path / "none.html"), code=2)
    assert "has no intermediate outputs; give its run, or export it with --taps attention,state" in refused.stderr
    assert "exists; give a new file" in seqlab("page", bundle, "--out", str(of_run), code=2).stderr
    assert not (tmp_path / "none.html").exists()


def test_a_config_is_measured_in_three_precisions_on_every_runtime(tmp_path: Path) -> None:
    seqlab = command(tmp_path)
    (tmp_path / "chromium").symlink_to("/bin/false")  # WebGPU in software takes minutes
    path = f"{tmp_path}:{os.environ['PATH']}"
    seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "bf16", "int8", "--out", "found", PATH=path)
    cells = json.loads((tmp_path / "found" / "parity.json").read_text())
    measured = {(cell["precision"], cell["runtime"]) for cell in cells if "missing" not in cell}
    python = "onnxruntime CPU, Python"
    of_torch = {(precision, f"PyTorch {how}") for precision in ("fp32", "bf16") for how in ("eager", "compiled")}
    assert of_torch | {("fp32", python), ("bf16", python), ("int8", python)} <= measured
    assert all(cell["ok"] for cell in cells if "missing" not in cell)
    assert "| lm/gru | fp32 | PyTorch eager |" in (tmp_path / "found" / "parity.md").read_text()
    refused = seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "int2", code=2)
    assert "precision must be one of fp32, fp16, bf16, int8, int4, got 'int2'" in refused.stderr
