"""Lines of a journal that are no writes are told by file and number, and set aside; the others are sent."""

from __future__ import annotations

import json

import pytest

from seqlab.cli import main
from seqlab.tracking.journal import Journal
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store
from seqlab.tracking.writes import Write
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


@pytest.fixture
def journal(store: Store) -> Journal:
    """One of a run that is there."""
    return Journal(store, make_run(store, "one", {"val/loss": [(0, 1.0)]}))


def test_the_command_goes_on(journal: Journal, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    journal.keep({"op": "tags", "tags": {"first": "1"}})
    for number, line in enumerate(LINES.values(), start=2):
        with journal.pending.open("ab") as file:
            file.write(line)
        journal.keep({"op": "tags", "tags": {str(number): "2"}})
    assert main(PROMOTE) == 2
    told = [record.getMessage() for record in caplog.records if "is no write of a run" in record.getMessage()]
    for number, said in zip(range(2, 2 * len(LINES) + 1, 2), told, strict=True):
        assert said.startswith(f"{journal.pending}, line {number} is no write of a run, set aside in ")
    assert journal.pending.with_suffix(".refused").read_bytes() == b"".join(LINES.values())
    assert not journal.pending.exists()
    assert {"first", *map(str, range(2, 2 + len(LINES)))} <= find_run("one", store).tags.keys()


def test_an_object_that_is_no_write_is_set_aside(journal: Journal) -> None:
    writes: list[Write] = [{"op": "points"}, {"op": "points", "points": 7}, {"op": "tags", "tags": [1]}]
    for write in writes:
        journal.keep(write)
    assert main(PROMOTE) == 2
    aside = journal.pending.with_suffix(".refused").read_text().splitlines()
    assert [json.loads(line) for line in aside] == writes
    assert not journal.pending.exists()
