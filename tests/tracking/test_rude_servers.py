"""A server that answers without end, without measure or in other types than MLflow's is told by its address."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from seqlab.cli import main
from seqlab.tracking import bounded_answers, readable
from seqlab.tracking.runs import TrackedRun, find_run, search
from seqlab.tracking.store import Store, UnreachableError
from tracking.fake_server import EXPERIMENT, reply, serving

POINTS = {"metrics": [{"key": "val/loss", "value": 1.5, "step": 1, "timestamp": 1}]}


def a_run(**info: Any) -> dict[str, Any]:
    known = {"run_id": "a" * 32, "run_name": "one", "experiment_id": "1", "status": "FINISHED", "start_time": 1}
    return {"info": {**known, "artifact_uri": "mlflow-artifacts:/1/a/artifacts", **info}, "data": POINTS}


class Rude:
    """
    Attributes:
        answers: the JSON, or the bytes, that are said to what is asked, by the end of its address.
        pause: seconds between the bytes of an answer to what is `slow`; 0 = it comes at once.
        missing: the bytes of the answer to what is `cut` that are announced and never come.
        redirects: the end of the addresses that are answered by a redirect to `/elsewhere`.
        asked: how often runs or a history were asked for.
        over: ends the slow answers.
    """

    def __init__(self) -> None:
        self.address, self.pause, self.asked, self.slow = "", 0.0, 0, "runs/search"
        self.over = Event()
        self.cut, self.missing, self.redirects = "/notes.txt", 0, "/moved.txt"
        self.answers: dict[str, Any] = {
            "experiments/search": {"experiments": [EXPERIMENT]},
            "runs/search": {"runs": [a_run()]},
            "runs/get": {"run": a_run()},
            "metrics/get-history": POINTS,
            "a/artifacts/notes.txt": b"n" * 60,
        }

    def serve(self, request: BaseHTTPRequestHandler, _: bytes) -> None:
        name = next((name for name in self.answers if request.path.partition("?")[0].endswith(name)), "")
        self.asked += name in ("runs/search", "metrics/get-history")
        answer = self.answers.get(name, {})
        answer = answer(self.asked) if callable(answer) else answer
        said = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        status = 302 if request.path.endswith(self.redirects) else 200
        headers = {"Location": f"{self.address}/elsewhere"}
        with suppress(OSError):  # the reader has gone
            if not self.pause or self.slow not in request.path:
                missing = self.missing if request.path.endswith(self.cut) else 0
                return reply(request, status, said, missing, **headers)
            reply(request, status, b"", len(said), **headers)
            for byte in said:
                request.wfile.write(bytes([byte]))
                request.wfile.flush()
                if self.over.wait(self.pause):
                    return


@pytest.fixture(name="rude")
def _rude(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rude]:
    rude = Rude()
    with serving(rude.serve) as rude.address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", rude.address)
        yield rude
        rude.over.set()


@pytest.fixture(name="run")
def _run(rude: Rude) -> TrackedRun:
    return find_run("one")


OTHER_TYPES = [
    {"runs": 7},
    {"runs": [7]},
    {"runs": [a_run(start_time="yesterday")]},
    {"runs": [a_run(start_time=2.5)]},
    {"runs": [a_run(run_id=7)]},
    {"runs": [a_run() | {"data": {"metrics": [{"key": "x", "value": "much"}]}}]},
    {"runs": [a_run() | {"data": {"tags": [{"key": "x", "value": {}}]}}]},
    {"next_page_token": 7},
    [],
    b"no JSON" * 1000,
    b"[" * 100_000,
    b'{"runs": ' + b"[" * 100_000,
]
LEFT_OUT = [
    {},
    b"\xff\xfe",
    {"runs": [{}]},
    {"runs": [{"info": [], "data": {}}]},
    {"runs": [a_run(experiment_id="9", run_name="", status="X")]},
    {"runs": [a_run(start_time=2**63 - 1)]},
]


@pytest.mark.parametrize(
    ("what", "answer", "why"),
    [
        *(("runs", answer, "does not answer") for answer in OTHER_TYPES),
        ("experiments", {"experiments": 7}, "does not answer"),
        ("experiments", {"experiments": [{"experiment_id": []}]}, "does not answer"),
        ("runs", {"runs": [a_run()], "next_page_token": "again"}, "gives the same page of runs again"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_one_sentence_names_the_address(
    what: str, answer: Any, why: str, rude: Rude, capsys: pytest.CaptureFixture[str]
) -> None:
    rude.answers[f"{what}/search"] = answer
    assert main(["compare"]) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("seqlab: ") and f"MLflow at {rude.address} {why}" in said and len(said) < 1000, said


@pytest.mark.parametrize("answer", LEFT_OUT, ids=lambda answer: repr(answer)[:40])
def test_what_is_left_out_is_no_traceback(answer: Any, rude: Rude, capsys: pytest.CaptureFixture[str]) -> None:
    rude.answers["runs/search"] = answer
    assert main(["compare"]) == 0 or len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("what", "limit", "why"),
    [
        ("runs/search", (readable, "MOST_PAGES"), "gives more than 3 pages of runs"),
        ("metrics/get-history", (bounded_answers, "MOST_ANSWERS"), ".* more than 3 pages"),
    ],
)
def test_pages_without_end(
    what: str, limit: tuple[Any, str], why: str, run: TrackedRun, rude: Rude, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = rude.answers[what]

    def ask(pages: int) -> int:
        more = lambda asked: {"next_page_token": str(asked)} if asked < pages else {}  # noqa: E731
        rude.asked, rude.answers[what] = 0, lambda asked: content | more(asked)
        return len(search(Store()) if what == "runs/search" else run.history("val/loss"))

    monkeypatch.setattr(*limit, 3)
    assert ask(3) == 3
    with pytest.raises(UnreachableError, match=f"MLflow at {rude.address} {why}"):
        ask(4)
    assert rude.asked == 3


def test_too_many_bytes(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 100_000)
    answer = json.dumps({"runs": [a_run()]}).encode()
    rude.answers["runs/search"] = answer + b" " * (100_000 - len(answer))
    assert len(search(Store())) == 1
    rude.answers["runs/search"] += b" "
    with pytest.raises(UnreachableError, match=f"MLflow at {rude.address} .* has more than 100000 bytes"):
        search(Store())


def test_a_byte_now_and_then(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes in time, the whole does not, and is asked for once."""
    rude.pause, rude.answers["runs/search"] = 0.001, b'{"runs": []}' + b" " * 28
    assert search(Store()) == []
    rude.asked, rude.pause, rude.answers["runs/search"] = 0, 0.02, b'{"runs": []}' + b" " * 10**6
    monkeypatch.setattr(bounded_answers, "MOST_SECONDS", 0.4)
    with pytest.raises(UnreachableError, match=rf"MLflow at {rude.address} .* takes more than 0\.4 s"):
        search(Store())
    assert rude.asked == 1


@pytest.mark.parametrize(("seconds", "pause"), [(4, 0.001), (41, 60)])
def test_a_file_by_a_byte_now_and_then(
    seconds: int, pause: float, run: TrackedRun, rude: Rude, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a file takes, it keeps coming: here at least 10 bytes in 40 s, where so many pass between two."""
    monkeypatch.setattr(bounded_answers, "MOST_SECONDS", 40.0)
    monkeypatch.setattr(bounded_answers, "LEAST_BYTES", 10)
    clock = SimpleNamespace(monotonic=itertools.count(0, seconds).__next__)
    monkeypatch.setattr(bounded_answers, "time", clock)
    rude.slow, rude.pause = "/notes.txt", pause
    if seconds == 4:
        assert read(run) == b"n" * 60
        return
    with pytest.raises(UnreachableError, match=r"did not send all of notes.txt: only \d bytes of it arrived in 40 s"):
        read(run)
    assert not [*run.artifacts.iterdir()]


def read(run: TrackedRun, name: str = "notes.txt") -> bytes:
    found = run.artifact(name)
    assert found is not None
    return found.read_bytes()


@pytest.mark.parametrize("cut", ["/notes.txt", "notes.txt"])
def test_what_is_cut_short_is_no_file_and_not_none(cut: str, run: TrackedRun, rude: Rude) -> None:
    """The file alone, or the list that it is looked for in too."""
    rude.cut, rude.missing = cut, 1
    with pytest.raises(UnreachableError, match=r"did not send all of notes\.txt"):
        read(run)
    assert not [*run.artifacts.iterdir()]
    rude.missing = 0
    assert read(run) == b"n" * 60


def test_a_file_leaves_room_on_the_disk(run: TrackedRun, rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "ROOM", 1000)
    free = SimpleNamespace(free=999)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    with pytest.raises(UnreachableError, match="less than 1000 bytes free"):
        read(run)
    free.free = 1000
    assert read(run) == b"n" * 60


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 256, "../x", "/etc/hosts"])
def test_a_name_that_is_no_files_is_refused_with_its_run(name: str, run: TrackedRun) -> None:
    why = r"^run one \(\w+\) has the artifact .{1,120}, which is not a file of its folder$"
    with pytest.raises(ValueError, match=why):
        run.artifact(name)


def test_a_redirect_is_not_followed(run: TrackedRun, rude: Rude) -> None:
    """Nor is its content kept in the place of a file's."""
    followed: list[int] = []
    rude.answers["a/artifacts/moved.txt"], rude.answers["/elsewhere"] = b"see there", followed.append
    with pytest.raises(UnreachableError, match=r"did not send all of moved\.txt: it is redirected \(302\)"):
        read(run, "moved.txt")
    rude.redirects = "/search"
    with pytest.raises(UnreachableError, match="does not answer"):
        search(Store())
    assert not followed
    rude.redirects = "none"
    assert read(run, "moved.txt") == b"see there"
