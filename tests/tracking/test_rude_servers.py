"""A server that answers without end, without measure or in other types than MLflow's is told by its address."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from seqlab.cli import main
from seqlab.tracking import bounded_answers, readable
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store, UnreachableError

EXPERIMENTS = {"experiments": [{"experiment_id": "1", "name": "e", "lifecycle_stage": "active"}]}


def a_run(**info: Any) -> dict[str, Any]:
    known = {"run_id": "a" * 32, "run_name": "one", "experiment_id": "1", "status": "FINISHED", "start_time": 1}
    data = {"metrics": [{"key": "val/loss", "value": 1.5, "step": 1, "timestamp": 1}]}
    return {"info": {**known, "artifact_uri": "mlflow-artifacts:/1/a/artifacts", **info}, "data": data}


class Rude:
    """
    Attributes:
        answers: the JSON, or the bytes, that are said to what is asked, by the end of its address.
        pause: seconds between the bytes of an answer to what is `slow`; 0 = it comes at once.
        missing: the bytes of the answer to what is `cut` that are announced and never come.
        redirects: the end of the addresses that are answered by a redirect to `/elsewhere`.
        asked: how often runs or a history were asked for.
    """

    def __init__(self, address: str) -> None:
        self.address, self.pause, self.asked, self.slow = address, 0.0, 0, "runs/search"
        self.cut, self.missing, self.redirects = "/notes.txt", 0, "/moved.txt"
        self.answers: dict[str, Any] = {"experiments/search": EXPERIMENTS, "runs/search": {"runs": [a_run()]}}
        point = {"key": "val/loss", "value": 1.5, "step": 1, "timestamp": 1}
        self.answers |= {"metrics/get-history": {"metrics": [point]}, "runs/get": {"run": a_run()}}

    def said(self, path: str) -> bytes:
        name = next((name for name in self.answers if path.partition("?")[0].endswith(name)), "")
        self.asked += name in ("runs/search", "metrics/get-history")
        answer = self.answers.get(name, {})
        if callable(answer):
            answer = answer(self.asked)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


@contextmanager
def rude_server() -> Iterator[Rude]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = rude.said(self.path)
            self.send_response(302 if self.path.endswith(rude.redirects) else 200)
            self.send_header("Location", f"{rude.address}/elsewhere")
            self.send_header("Content-Length", str(len(said) + (rude.missing if self.path.endswith(rude.cut) else 0)))
            self.end_headers()
            slow = rude.pause and rude.slow in self.path
            try:
                for piece in [said[place : place + 1] for place in range(len(said))] if slow else [said]:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    time.sleep(rude.pause if slow else 0)
            except OSError:
                pass  # the reader has gone

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    rude = Rude(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield rude
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(name="rude")
def _rude(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rude]:
    with rude_server() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
        yield server


def refusal(rude: Rude, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of `compare`, which names the address."""
    assert main(["compare"]) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("seqlab: ") and rude.address in said and len(said) < 1000, said
    return said


def test_a_good_answer_is_taken(rude: Rude) -> None:
    assert [run.name for run in search(Store())] == ["one"]
    assert find_run("one").history("val/loss") == [(1, 1.5)]


@pytest.mark.parametrize(
    "answer",
    [
        {"runs": 7},
        {"runs": [7]},
        {"runs": [a_run(start_time="yesterday")]},
        {"runs": [a_run(start_time=2.5)]},
        {"runs": [a_run(run_id=7)]},
        {"runs": [{"info": a_run()["info"], "data": {"metrics": [{"key": "x", "value": "much"}]}}]},
        {"runs": [{"info": a_run()["info"], "data": {"tags": [{"key": "x", "value": {}}]}}]},
        {"next_page_token": 7},
        [],
        b"no JSON" * 1000,
        b"[" * 100_000,
        b'{"runs": ' + b"[" * 100_000,
    ],
    ids=lambda answer: repr(answer)[:40],
)
def test_other_types(answer: Any, rude: Rude, capsys: pytest.CaptureFixture[str]) -> None:
    rude.answers["runs/search"] = answer
    assert "does not answer" in refusal(rude, capsys)


LEFT_OUT = [
    {},
    b"\xff\xfe",
    {"runs": [{}]},
    {"runs": [{"info": [], "data": {}}]},
    {"runs": [a_run(experiment_id="9", run_name="", status="X")]},
    {"runs": [a_run(start_time=2**63 - 1)]},
]


@pytest.mark.parametrize("answer", LEFT_OUT, ids=lambda answer: repr(answer)[:40])
def test_what_is_left_out_is_no_traceback(answer: Any, rude: Rude, capsys: pytest.CaptureFixture[str]) -> None:
    rude.answers["runs/search"] = answer
    code = main(["compare"])
    assert code == 0 or len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("experiments", [{"experiments": 7}, {"experiments": [{"experiment_id": []}]}])
def test_other_types_of_experiments(experiments: Any, rude: Rude, capsys: pytest.CaptureFixture[str]) -> None:
    rude.answers["experiments/search"] = experiments
    assert "does not answer" in refusal(rude, capsys)


def test_the_same_page_for_ever(rude: Rude, capsys: pytest.CaptureFixture[str]) -> None:
    rude.answers["runs/search"] = {"runs": [a_run()], "next_page_token": "again"}
    assert f"MLflow at {rude.address} gives the same page of runs again" in refusal(rude, capsys)


def pages(last: int) -> Callable[[int], dict[str, Any]]:
    return lambda asked: {"runs": [a_run()]} | ({"next_page_token": str(asked)} if asked < last else {})


def test_another_page_for_ever(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable, "MOST_PAGES", 3)
    rude.answers["runs/search"] = pages(3)
    assert len(search(Store())) == 3
    rude.asked, rude.answers["runs/search"] = 0, pages(4)
    with pytest.raises(UnreachableError, match=f"{rude.address} gives more than 3 pages of runs"):
        search(Store())
    assert rude.asked == 3


def test_a_history_of_pages_for_ever(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "MOST_ANSWERS", 3)
    run = find_run("one")
    metric = {"metrics": [{"key": "val/loss", "value": 1.5, "step": 1, "timestamp": 1}]}

    def history(last: int) -> Callable[[int], dict[str, Any]]:
        return lambda asked: metric | ({"next_page_token": "again"} if asked < last else {})

    rude.asked, rude.answers["metrics/get-history"] = 0, history(3)
    assert len(run.history("val/loss")) == 3
    rude.asked, rude.answers["metrics/get-history"] = 0, history(4)
    with pytest.raises(UnreachableError, match=f"{rude.address} .* more than 3 pages"):
        run.history("val/loss")


def test_too_many_bytes(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 100_000)
    answer = json.dumps({"runs": [a_run()]}).encode()
    rude.answers["runs/search"] = answer + b" " * (100_000 - len(answer))
    assert len(search(Store())) == 1
    rude.answers["runs/search"] += b" "
    with pytest.raises(UnreachableError, match=f"MLflow at {rude.address} .* has more than 100000 bytes"):
        search(Store())


def test_a_byte_now_and_then(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes in time, the whole does not."""
    rude.answers["runs/search"] = b'{"runs": []}' + b" " * 28
    rude.pause = 0.02
    assert search(Store()) == []
    monkeypatch.setattr(bounded_answers, "MOST_SECONDS", 0.4)
    begin = time.monotonic()
    with pytest.raises(UnreachableError, match=rf"MLflow at {rude.address} .* takes more than 0\.4 s"):
        search(Store())
    assert time.monotonic() - begin < 5


def test_a_file_by_a_byte_now_and_then(rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a file takes, it keeps coming: here at least ten bytes in 0.4 s."""
    run = find_run("one")
    monkeypatch.setattr(bounded_answers, "MOST_SECONDS", 0.4)
    monkeypatch.setattr(bounded_answers, "LEAST_BYTES", 10)
    rude.answers["a/artifacts/notes.txt"], rude.slow, rude.pause = b"n" * 60, "notes.txt", 0.02
    found = run.artifact("notes.txt")
    assert found is not None and found.read_bytes() == b"n" * 60

    rude.answers["a/artifacts/more.txt"], rude.slow, rude.pause = b"n" * 60, "more.txt", 0.1
    with pytest.raises(UnreachableError, match=r"sends no whole more.txt: only \d bytes of it came in 0\.4 s"):
        run.artifact("more.txt")
    assert [path.name for path in run.artifacts.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("cut", ["/notes.txt", "notes.txt"])
def test_what_is_cut_short_is_no_file_and_not_none(cut: str, rude: Rude) -> None:
    """The file alone, or the list that it is looked for in too."""
    run = find_run("one")
    rude.answers["a/artifacts/notes.txt"], rude.cut, rude.missing = b"n" * 60, cut, 1
    with pytest.raises(UnreachableError, match=r"sends no whole notes\.txt"):
        run.artifact("notes.txt")
    assert not [*run.artifacts.iterdir()]
    rude.missing = 0
    found = run.artifact("notes.txt")
    assert found is not None and found.read_bytes() == b"n" * 60


@pytest.mark.parametrize("free", [1000, 999])
def test_a_file_leaves_room_on_the_disk(free: int, rude: Rude, monkeypatch: pytest.MonkeyPatch) -> None:
    run = find_run("one")
    rude.answers["a/artifacts/notes.txt"] = b"n" * 60
    monkeypatch.setattr(bounded_answers, "ROOM", 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    if free == 1000:
        assert run.artifact("notes.txt") is not None
    else:
        with pytest.raises(UnreachableError, match="less than 1000 bytes free"):
            run.artifact("notes.txt")


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 256, "../x", "/etc/hosts"])
def test_a_name_that_is_no_files_is_refused_with_its_run(name: str, rude: Rude) -> None:
    with pytest.raises(
        ValueError, match=r"^run one \(\w+\) has .{1,120} for an artifact, which is no file of its folder$"
    ):
        find_run("one").artifact(name)


def test_a_redirect_is_no_file(rude: Rude) -> None:
    """It is followed nowhere, and its content is not kept in the place of the file's."""
    run = find_run("one")
    rude.answers["a/artifacts/moved.txt"], rude.answers["/elsewhere"] = b"see there", b"stolen"
    with pytest.raises(UnreachableError, match=r"sends no whole moved\.txt: it is redirected \(302\)"):
        run.artifact("moved.txt")
    rude.redirects = "none"
    found = run.artifact("moved.txt")
    assert found is not None and found.read_bytes() == b"see there"
