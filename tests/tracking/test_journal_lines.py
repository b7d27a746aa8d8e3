"""Lines of a journal that are no writes are told by file and number, and set aside; the others are sent."""

from __future__ import annotations

import json

import pytest

from seqlab.cli import main
from seqlab.tracking.journal import Journal
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store
from tracking.tiny import make_run

LINES = {
    "no object": b"[1, 2]\n",
    "a number": b"7\n",
    "no JSON": b"{not json\n",
    "nothing": b"\n",
    "no op": b"{}\n",
    "an op that is none": b'{"op": 3}\n',
    "too deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b'{"op": "tags", "tags": {"a": "\xff"}}\n',
    "a number too long": b"9" * 10_000 + b"\n",
}

PROMOTE = ["promote", "one"]
"""A command that sends what was kept, and then has nothing to promote."""


@pytest.mark.parametrize("what", LINES)
def test_the_command_goes_on(
    what: str, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SEQLAB_STATE", str(store.root / "state"))
    run = make_run(store, "one", {"val/loss": [(0, 1.0)]})
    journal = Journal(store, run)
    journal.keep({"op": "tags", "tags": {"first": "1"}})
    with journal.pending.open("ab") as file:
        file.write(LINES[what])
    journal.keep({"op": "tags", "tags": {"second": "2"}})
    assert main(PROMOTE) == 2
    [told] = [record.getMessage() for record in caplog.records if "is no write of a run" in record.getMessage()]
    assert told.startswith(f"{journal.pending}, line 2 is no write of a run, set aside in ")
    assert journal.pending.with_suffix(".refused").read_bytes() == LINES[what]
    assert not journal.pending.exists()
    assert {"first", "second"} <= find_run("one", store).tags.keys()


@pytest.mark.parametrize("write", [{"op": "points"}, {"op": "points", "points": 7}, {"op": "tags", "tags": [1]}])
def test_an_object_that_is_no_write_is_set_aside(write: dict[str, object], store: Store) -> None:
    run = make_run(store, "one", {"val/loss": [(0, 1.0)]})
    journal = Journal(store, run)
    journal.keep(write)
    assert main(PROMOTE) == 2
    assert json.loads(journal.pending.with_suffix(".refused").read_text()) == write
    assert not journal.pending.exists()
