"""A verb that reads leaves a store as it is, whoever made it, to the byte; and calls nobody, whatever address a store,
a checkpoint or a bundle holds."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import onnx
import pytest

from cli.conftest import TINY, Seqlab, command
from export.planted import reseal
from export.toys import shared_toy
from seqlab import load_run
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.cli import main
from seqlab.tracking.provenance import host_id
from seqlab.tracking.runs import find_run
from seqlab_export.page import html
from seqlab_export.runner.manifest import load_manifest


@pytest.fixture(name="strangers")
def _strangers(theirs: Path) -> Path:
    """A folder with a copy of a stranger's store: the run `first`, one that runs on another machine, one of this
    machine whose process is gone, a journal, and no experiment of MLflow's own."""
    folder = theirs
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as database, database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(runs)")]
        [first] = database.execute("SELECT run_uuid FROM runs WHERE name = 'first'").fetchone()
        for number, (name, host) in enumerate({"far": "elsewhere", "gone": host_id()}.items()):
            changed = {"run_uuid": f"'{number:032x}'", "name": f"'{name}'", "status": "'RUNNING'", "end_time": "NULL"}
            values = ", ".join(changed.get(column, column) for column in names)
            database.execute(f"INSERT INTO runs SELECT {values} FROM runs WHERE run_uuid = '{first}'")
            point = "key, value, timestamp, step, is_nan"
            for table, columns in (("tags", "key, value"), ("latest_metrics", point), ("metrics", point)):
                copied = f"SELECT '{number:032x}', {columns} FROM {table} WHERE run_uuid = '{first}'"
                database.execute(f"INSERT INTO {table} (run_uuid, {columns}) {copied}")
            for key, value in {"host.id": host, "process.id": str(2**22 + 1), "process.start": "1.0"}.items():
                where = f"run_uuid = '{number:032x}' AND key = '{key}'"
                database.execute(f"UPDATE tags SET value = '{value}' WHERE {where}")
        database.execute("DELETE FROM experiments WHERE experiment_id = 0")
    (folder / "mlruns" / ".pending").mkdir()
    (folder / "mlruns" / ".pending" / f"{first}.jsonl").write_text('{"op": "tags", "tags": {"owned": "yes"}}\n')
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file, None of a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


CONFIG = ("--config=lm/attention-rope", *(flag for flag in TINY if flag.startswith(("--data", "--model"))))
READING: tuple[tuple[str, ...], ...] = (
    ("compare", "--out=report.html"),
    ("compare", "first", "--quiet"),
    ("generate", "first", "--max-new-tokens=2"),
    ("predict", "first", "--out=said.jsonl"),
    ("predict", *CONFIG, "--ckpt_path=first"),
    ("classify", "first"),
    ("consolidate", "first"),
    ("profile", *CONFIG, "--init_from=first", "--steps=1"),
    ("env",),
    ("study", "page", "memory"),
)
EXPORTING: tuple[tuple[str, ...], ...] = (
    ("export", "first", "--out=bundle"),
    ("verify", "bundle"),
    ("page", "bundle", "--out=page.html"),
    ("inspect", "first", "--out=inside.html"),
    ("export", "first", "--format=triton", "--precision=int8", "--out=models"),
    ("parity", "--models", "first", "--precisions", "fp32"),
    ("generate", "bundle", "--max-new-tokens=2"),
)
REFUSED = {"consolidate": "already one file", "classify": "seqlab generate", "study": "was not run here"}


def run(commands: tuple[tuple[str, ...], ...], folder: Path, seqlab: Seqlab, *, writable: bool) -> None:
    store = folder / "mlruns"
    before = content(store)
    if not writable:
        for path in (*store.rglob("*"), store):
            path.chmod(0o555 if path.is_dir() else 0o444)
    for verb in commands:
        said = seqlab(*verb, code=2 if verb[0] in REFUSED else 0).stderr
        assert REFUSED.get(verb[0], "") in said
        after = content(store)
        assert after.keys() == before.keys(), verb
        assert [path for path in before if before[path] != after[path]] == [], verb


@pytest.mark.slow
@pytest.mark.parametrize("writable", [True, False])
def test_a_verb_that_reads_changes_nothing(writable: bool, strangers: Path, inside: Callable[[Path], Seqlab]) -> None:
    seqlab = inside(strangers)
    run(READING, strangers, seqlab, writable=writable)
    before = content(strangers / "mlruns")
    assert load_run("first").run_id == find_run("first").id
    table = seqlab("compare", COLUMNS="160").stdout.splitlines()
    shown = [next(line for line in table if name in line).split()[-2] for name in ("far", "gone")]
    assert shown == ["RUNNING", "KILLED"] and content(strangers / "mlruns") == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_verb_of_bundles_changes_nothing(
    strangers: Path, inside: Callable[[Path], Seqlab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "template.html").write_text(html.PLACE)  # where no page is built
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")
    run(EXPORTING, strangers, inside(strangers), writable=False)


@pytest.fixture(name="listener")
def _listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address of this machine that is called by nobody: not by Python, and not by a library of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        called: list[Any] = []
        connect = socket.socket.connect

        def noted(self: socket.socket, address: Any) -> None:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                called.append(address)
            connect(self, address)

        monkeypatch.setattr(socket.socket, "connect", noted)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert called == []


def plant_in_store(folder: Path, address: str, *, files: bool) -> None:
    """Wherever a store can hold an address."""
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as database, database:
        [run_id] = database.execute("SELECT run_uuid FROM runs WHERE name = 'first'").fetchone()
        named = ["mlflow.source.git.repoURL", "mlflow.source.name", "mlflow.artifactUri", "mlflow.trackingUri", "job"]
        named += ["mlflow.databricks.workspaceURL", "seqlab.offline_id", "mlflow.parentRunId", "dataset", "test.data"]
        for name in named:
            database.execute("INSERT OR REPLACE INTO tags VALUES (?, ?, ?)", (name, f"{address}/{name}", run_id))
        database.execute("UPDATE params SET value = ? WHERE key LIKE 'data%'", (f"{address}/params",))
        database.execute("UPDATE datasets SET dataset_source = ?", (json.dumps({"uri": f"{address}/data"}),))
        database.execute("UPDATE experiments SET artifact_location = ?", (f"{address}/experiment",))
        database.execute("INSERT OR REPLACE INTO registered_models (name) VALUES ('tiny')")
        database.execute(
            "INSERT OR REPLACE INTO model_versions (name, version, source, run_id, current_stage, storage_location) "
            "VALUES ('tiny', 1, ?, ?, 'None', ?)",
            (f"{address}/source", run_id, f"{address}/storage"),
        )
        if files:
            database.execute("UPDATE runs SET artifact_uri = ?", (f"{address}/a/b/c",))
            database.execute("UPDATE tags SET value = ? WHERE key LIKE 'checkpoint.%'", (f"{address}/best.ckpt",))


def plant_in_checkpoint(folder: Path, address: str) -> None:
    """Wherever a stored config takes a text that may be one."""
    for path in folder.glob("mlruns/tiny/*/artifacts/checkpoints/*.ckpt"):
        checkpoint = read_checkpoint(path)
        config = checkpoint["seqlab"]["config"]
        config["data"]["init_args"] |= {"path": f"{address}/text.txt", "cache_dir": f"{address}/cache"}
        for name in ("init_from", "encoder_from", "word_vectors", "ckpt_path", "run_name", "experiment"):
            config[name] = f"{address}/{name}"
        AtomicCheckpointIO().save_checkpoint(checkpoint, path)
    for path in folder.glob("mlruns/tiny/*/artifacts/config.yaml"):
        path.write_text(path.read_text().replace("text.txt", f"{address}/text.txt"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("where", ["files", "store", "checkpoint"])
def test_no_address_of_a_store_or_a_checkpoint_is_called(
    where: str, theirs: Path, listener: str, inside: Callable[[Path], Seqlab]
) -> None:
    inside(theirs)
    plant_in_store(theirs, listener, files=where == "files")
    if where == "checkpoint":
        plant_in_checkpoint(theirs, listener)
    (export, _, _, inspect, *_) = EXPORTING
    asked = [*READING, export, inspect, ("resume", "first"), ("test", "first")]
    asked += [("parity", "--models=first", "--precisions=int8")] * (where == "files")
    codes = {command[0]: main([*command]) for command in asked}
    assert codes["generate"] == codes["export"] == (2 if where == "files" else 0), codes


@pytest.mark.slow
def test_a_dataset_that_a_stored_config_names_is_not_fetched_unasked(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes, as Hugging Face's libraries read the environment when they are imported."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # a verb in this process sets it
    for path in theirs.glob("mlruns/tiny/*/artifacts/checkpoints/*.ckpt"):
        checkpoint = read_checkpoint(path)
        checkpoint["seqlab"]["config"]["data"]["init_args"]["path"] = "hf:stranger/texts@train"
        AtomicCheckpointIO().save_checkpoint(checkpoint, path)
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            asked.append(self.path)  # that it does not serve such a request

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        seqlab = command(theirs)
        there = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}", "HF_HOME": str(theirs / "hub")}
        said = seqlab("test", "first", code=2, **there).stderr
        assert (
            "hf:stranger/texts@train cannot be read: it is not on this machine; set HF_HUB_OFFLINE=0 to download it"
            in said
            and not asked
        )
        seqlab("test", "first", code=2, **there, HF_HUB_OFFLINE="0")
        hub.shutdown()
    assert any("stranger/texts" in path for path in asked)


@pytest.mark.parametrize("place", ["provenance", "weights", "tokenizer"])
def test_no_address_of_a_bundle_is_called(
    place: str,
    theirs: Path,
    listener: str,
    inside: Callable[[Path], Seqlab],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    inside(theirs)
    bundle = theirs / "bundle"
    shutil.copytree(shared_toy("gru", tmp_path_factory).folder, bundle)
    if place == "provenance":
        manifest = load_manifest(bundle)
        told = replace(manifest.provenance, run_id=f"{listener}/run", commit=f"{listener}/commit")
        replace(manifest, provenance=told).save(bundle)
    elif place == "weights":
        graph = onnx.load(bundle / "model.onnx", load_external_data=False)
        for entry in [one for tensor in graph.graph.initializer for one in tensor.external_data]:
            entry.value = f"{listener}/weights.bin" if entry.key == "location" else entry.value
        onnx.save(graph, bundle / "model.onnx")
    else:
        (bundle / "tokenizer" / "tokenizer.json").write_text(json.dumps({"class": f"{listener}/a", "url": listener}))
    reseal(bundle)
    for args in (["verify", "bundle"], ["generate", "bundle"], ["page", "bundle", "--out=page.html"]):
        main(args)
    assert main(["promote", "bundle"]) != 0


@pytest.mark.usefixtures("beside_first")
def test_a_stored_config_has_a_place_for_what_the_data_tell() -> None:
    """Without it a job of an earlier version would be another one."""
    options = find_run("first").config["model"]["init_args"]
    assert {name: options[name] for name in ("vocab_size", "seq_len")} == {"vocab_size": None, "seq_len": None}
