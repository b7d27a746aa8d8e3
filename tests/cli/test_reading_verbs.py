"""A verb that reads leaves a store as it is, whoever made it, and calls nobody, whatever address is planted there."""

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

from cli.conftest import Seqlab, command
from export.planted import reseal
from export.toys import shared_toy
from seqlab import load_run
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from seqlab.cli import main
from seqlab.tracking.provenance import host_id
from seqlab.tracking.runs import find_run
from seqlab_export.page import html
from seqlab_export.runner.manifest import load_manifest


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


@pytest.fixture(name="theirs")
def _theirs(fitted: tuple[Path, Seqlab], tmp_path: Path) -> Path:
    """A folder with a copy of a stranger's store, of the run `first`."""
    home, _ = fitted
    shutil.copytree(home / "mlruns", tmp_path / "theirs" / "mlruns")
    shutil.copy(home / "text.txt", tmp_path / "theirs")
    return tmp_path / "theirs"


def add_strangers(folder: Path) -> None:
    """Adds a run on another machine, one of this machine whose process is gone, and a journal, and takes away MLflow's
    own experiment."""
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as database, database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(runs)")]
        [first] = database.execute("SELECT run_uuid FROM runs WHERE name = 'first'").fetchone()
        for number, (name, host) in enumerate({"far": "elsewhere", "gone": host_id()}.items()):
            new = f"{number:032x}"
            changed = {"run_uuid": f"'{new}'", "name": f"'{name}'", "status": "'RUNNING'", "end_time": "NULL"}
            values = ", ".join(changed.get(column, column) for column in names)
            database.execute(f"INSERT INTO runs SELECT {values} FROM runs WHERE run_uuid = '{first}'")
            point = "key, value, timestamp, step, is_nan"
            for table, columns in (("tags", "key, value"), ("latest_metrics", point), ("metrics", point)):
                copied = f"SELECT '{new}', {columns} FROM {table} WHERE run_uuid = '{first}'"
                database.execute(f"INSERT INTO {table} (run_uuid, {columns}) {copied}")
            for key, value in {"host.id": host, "process.id": str(2**22 + 1), "process.start": "1.0"}.items():
                database.execute("UPDATE tags SET value = ? WHERE run_uuid = ? AND key = ?", (value, new, key))
        database.execute("DELETE FROM experiments WHERE experiment_id = 0")
    (folder / "mlruns" / ".pending").mkdir()
    (folder / "mlruns" / ".pending" / f"{first}.jsonl").write_text('{"op": "tags", "tags": {"owned": "yes"}}\n')


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
        database.execute("INSERT INTO registered_models (name) VALUES ('tiny')")
        database.execute(
            "INSERT INTO model_versions (name, version, source, run_id, current_stage, storage_location) "
            "VALUES ('tiny', 1, ?, ?, 'None', ?)",
            (f"{address}/source", run_id, f"{address}/storage"),
        )
        if files:
            database.execute("UPDATE runs SET artifact_uri = ?", (f"{address}/a/b/c",))
            database.execute("UPDATE tags SET value = ? WHERE key LIKE 'checkpoint.%'", (f"{address}/best.ckpt",))


def plant_in_config(folder: Path, changed: dict[str, str], of_data: dict[str, str]) -> None:
    """Wherever a stored config takes a text that may be an address."""
    for path in folder.glob("mlruns/tiny/*/artifacts/checkpoints/*.ckpt"):
        checkpoint = read_checkpoint(path)
        checkpoint["seqlab"]["config"] |= changed
        checkpoint["seqlab"]["config"]["data"]["init_args"] |= of_data
        AtomicCheckpointIO().save_checkpoint(checkpoint, path)


def content(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file, None of a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


SMALL = "--config=lm/attention-rope --data.path=text.txt --data.seq_len=16 --model.model.d_model=16"
SMALL += " --model.model.num_layers=1"
READING = (
    "compare --out=report.html",
    "compare first --quiet",
    "generate first --max-new-tokens=2",
    "predict first --out=said.jsonl",
    f"predict {SMALL} --ckpt_path=first",
    "classify first",
    "consolidate first",
    f"profile {SMALL} --init_from=first --steps=1",
    "env",
    "study page memory",
    "export first --out=bundle",
    "verify bundle",
    "page bundle --out=page.html",
    "inspect first --out=inside.html",
    "export first --format=triton --precision=int8 --out=models",
    "parity --models first --precisions fp32",
    "generate bundle --max-new-tokens=2",
)
REFUSED = {"consolidate": "in one file already", "classify": "seqlab generate", "study": "was not run here"}


@pytest.fixture(name="template")
def _template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's, where none is built."""
    (tmp_path / "template.html").write_text(html.PLACE)
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("writable", [True, False])
def test_a_verb_that_reads_changes_nothing(
    writable: bool, theirs: Path, listener: str, inside: Callable[[Path], Seqlab]
) -> None:
    seqlab, store = inside(theirs), theirs / "mlruns"
    add_strangers(theirs)
    plant_in_store(theirs, listener, files=False)
    before = content(store)
    for path in () if writable else (*store.rglob("*"), store):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for typed in READING:
        verb, *args = typed.split()
        said = seqlab(verb, *args, code=2 if verb in REFUSED else 0).stderr
        assert REFUSED.get(verb, "") in said
        after = content(store)
        assert after.keys() == before.keys(), typed
        assert [path for path in before if before[path] != after[path]] == [], typed
    assert load_run("first").run_id == find_run("first").id
    table = seqlab("compare", COLUMNS="160").stdout.splitlines()
    told = [next(line for line in table if name in line).split()[-2] for name in ("far", "gone")]
    assert told == ["RUNNING", "KILLED"]
    assert content(store) == before


@pytest.mark.slow
@pytest.mark.usefixtures("template")
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("where", ["files", "checkpoint"])
def test_no_address_of_a_store_or_a_checkpoint_is_called(
    where: str, theirs: Path, listener: str, inside: Callable[[Path], Seqlab]
) -> None:
    inside(theirs)
    plant_in_store(theirs, listener, files=where == "files")
    if where == "checkpoint":
        names = ("init_from", "encoder_from", "word_vectors", "ckpt_path", "run_name", "experiment")
        of_data = {"path": f"{listener}/text.txt", "cache_dir": f"{listener}/cache"}
        plant_in_config(theirs, {name: f"{listener}/{name}" for name in names}, of_data)
        for path in theirs.glob("mlruns/tiny/*/artifacts/config.yaml"):
            path.write_text(path.read_text().replace("text.txt", f"{listener}/text.txt"))
    codes = {typed: main(typed.split()) for typed in (*READING, "resume first", "test first")}
    refused = 2 if where == "files" else 0
    assert codes["generate first --max-new-tokens=2"] == codes["export first --out=bundle"] == refused, codes


@pytest.mark.slow
def test_a_dataset_that_a_stored_config_names_is_not_fetched_unasked(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes, as Hugging Face's libraries read the environment when they are imported."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # a verb in this process sets it
    plant_in_config(theirs, {}, {"path": "hf:stranger/texts@train"})
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        seqlab = command(theirs)
        there = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}", "HF_HOME": str(theirs / "hub")}
        said = seqlab("test", "first", code=2, **there).stderr
        refused = "hf:stranger/texts@train cannot be read: it is not on this machine, and HF_HUB_OFFLINE=0 fetches it"
        assert refused in said and not asked
        seqlab("test", "first", code=2, **there, HF_HUB_OFFLINE="0")
        hub.shutdown()
    assert any("stranger/texts" in path for path in asked)


@pytest.mark.parametrize("place", ["provenance", "weights", "tokenizer"])
def test_no_address_of_a_bundle_is_called(
    place: str, theirs: Path, listener: str, inside: Callable[[Path], Seqlab], tmp_path_factory: pytest.TempPathFactory
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
    for line in ("verify bundle", "generate bundle", "page bundle --out=page.html"):
        main(line.split())
    assert main(["promote", "bundle"]) != 0
