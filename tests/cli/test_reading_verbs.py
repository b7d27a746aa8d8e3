"""A verb that reads leaves a store as it is, whoever made it: every byte of every file, and the list of them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Seqlab
from seqlab import load_run
from seqlab.tracking.provenance import host_id
from seqlab.tracking.runs import find_run
from seqlab_export.page import html


@pytest.fixture(name="theirs")
def _theirs(fitted: tuple[Path, Seqlab], tmp_path: Path) -> Path:
    """A folder with a copy of a stranger's store: the run `first`, one that runs on another machine, one of this
    machine whose process is gone, a journal, and no experiment of MLflow's own."""
    home, _ = fitted
    folder = tmp_path / "theirs"
    shutil.copytree(home / "mlruns", folder / "mlruns")
    shutil.copy(home / "text.txt", folder)
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as database, database:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(runs)")]
        [first] = database.execute("SELECT run_uuid FROM runs WHERE name = 'first'").fetchone()
        for number, (name, host) in enumerate({"far": "elsewhere", "gone": host_id()}.items()):
            changed = {"run_uuid": f"'{number:032x}'", "name": f"'{name}'", "status": "'RUNNING'", "end_time": "NULL"}
            values = ", ".join(changed.get(column, column) for column in names)
            database.execute(f"INSERT INTO runs SELECT {values} FROM runs WHERE run_uuid = '{first}'")
            point = "key, value, timestamp, step, is_nan"
            for table, columns in (("tags", "key, value"), ("latest_metrics", point), ("metrics", point)):
                database.execute(
                    f"INSERT INTO {table} (run_uuid, {columns}) SELECT '{number:032x}', {columns} FROM {table} "
                    f"WHERE run_uuid = '{first}'"
                )
            for key, value in {"host.id": host, "process.id": str(2**22 + 1), "process.start": "1.0"}.items():
                database.execute(
                    f"UPDATE tags SET value = '{value}' WHERE run_uuid = '{number:032x}' AND key = '{key}'"
                )
        database.execute("DELETE FROM experiments WHERE experiment_id = 0")
    (folder / "mlruns" / ".pending").mkdir()
    (folder / "mlruns" / ".pending" / f"{first}.jsonl").write_text('{"op": "tags", "tags": {"owned": "yes"}}\n')
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file, None of a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


READING: tuple[tuple[str, ...], ...] = (
    ("compare", "--out=report.html"),
    ("compare", "first", "--quiet"),
    ("generate", "first", "--max-new-tokens=2"),
    ("predict", "first", "--out=said.jsonl"),
    ("predict", "--config=lm/attention-rope", "--data.path=text.txt", "--data.seq_len=16", "--model.model.d_model=16",
     "--model.model.num_layers=1", "--ckpt_path=first"),
    ("classify", "first"),
    ("consolidate", "first"),
    ("profile", "--config=lm/attention-rope", "--data.path=text.txt", "--data.seq_len=16", "--model.model.d_model=16",
     "--model.model.num_layers=1", "--init_from=first", "--steps=1"),
    ("env",),
    ("study", "page", "memory"),
)  # fmt: skip
EXPORTING: tuple[tuple[str, ...], ...] = (
    ("export", "first", "--out=bundle"),
    ("verify", "bundle"),
    ("page", "bundle", "--out=page.html"),
    ("inspect", "first", "--out=inside.html"),
    ("export", "first", "--format=triton", "--precision=int8", "--out=models"),
    ("parity", "--models", "first", "--precisions", "fp32"),
    ("generate", "bundle", "--max-new-tokens=2"),
)
REFUSED = {"consolidate": "in one file already", "classify": "seqlab generate", "study": "was not run here"}


def run(commands: tuple[tuple[str, ...], ...], theirs: Path, seqlab: Seqlab, *, writable: bool) -> None:
    store = theirs / "mlruns"
    before = content(store)
    if not writable:
        for path in (*store.rglob("*"), store):
            path.chmod(0o555 if path.is_dir() else 0o444)
    for command in commands:
        said = seqlab(*command, code=2 if command[0] in REFUSED else 0).stderr
        assert REFUSED.get(command[0], "") in said
        after = content(store)
        assert after.keys() == before.keys(), command
        assert [path for path in before if before[path] != after[path]] == [], command


@pytest.mark.slow
@pytest.mark.parametrize("writable", [True, False])
def test_a_verb_that_reads_changes_nothing(
    writable: bool, theirs: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    seqlab = inside(theirs)
    run(READING, theirs, seqlab, writable=writable)
    before = content(theirs / "mlruns")
    assert load_run("first").run_id == find_run("first").id
    table = seqlab("compare", COLUMNS="160").stdout
    assert [next(line for line in table.splitlines() if name in line).split()[-2] for name in ("far", "gone")] == [
        "RUNNING",
        "KILLED",
    ]
    assert content(theirs / "mlruns") == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_verb_of_bundles_changes_nothing(
    theirs: Path, inside: Callable[[Path], Seqlab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "template.html").write_text(html.PLACE)  # where no page is built
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")
    run(EXPORTING, theirs, inside(theirs), writable=False)
