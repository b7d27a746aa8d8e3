"""Servers in this process, and the part of MLflow's that a fit writes to: quick to start, as rude as a test needs."""

from __future__ import annotations

import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PREFIX = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts"
EXPERIMENT = {"experiment_id": "1", "name": "remote", "lifecycle_stage": "active"}


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """The address of a server that leaves every request, with its content, to `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reply(request: BaseHTTPRequestHandler, status: int, said: bytes, missing: int = 0, **headers: str) -> None:
    """Answers, but for the last `missing` bytes that it announces."""
    request.send_response(status)
    for name, value in {"Content-Length": str(len(said) + missing), **headers}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(said)


class FakeServer:
    """One run.

    Attributes:
        status: answers every write with this status and no JSON, where it is not 200.
        answers: while it is not set, a write is not answered.
        refused: a metric that it takes for an invalid one.
        files: what was uploaded, by path.
        location: where it says that the run's files are; empty = behind its own address.
    """

    location = ""

    def __init__(self) -> None:
        self.address, self.run_id = "", uuid.uuid4().hex  # MLflow caches the addresses of a run's files
        self.status, self.refused, self.answers = 200, "", threading.Event()
        self.answers.set()
        self.points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.tags: dict[str, str] = {}
        self.params: dict[str, str] = {}
        self.uploaded: list[str] = []
        self.files: dict[str, bytes] = {}
        self.run_status = "RUNNING"

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        address, gets = urlsplit(request.path), request.command == "GET"
        if not gets and not address.path.endswith(("create", "search")):
            self.answers.wait()
            if self.status != 200:
                return reply(request, self.status, b"go away")
        file = address.path.removeprefix(f"{FILES}/")
        if request.command == "PUT":
            self.uploaded.append(file.rpartition("/")[2])
            self.files[file] = body
        if gets and file in self.files:
            return reply(request, 200, self.files[file])
        asked = json.loads(body) if not gets and body.startswith(b"{") else parse_qs(address.query)
        if gets and address.path == FILES:
            return reply(request, 200, json.dumps({"files": self.listed(asked["path"][0])}).encode())
        status, found = self.answer(address.path.removeprefix(PREFIX), asked)
        reply(request, status, json.dumps(found).encode())

    def answer(self, what: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match what:
            case "experiments/get-by-name" | "experiments/get":
                return 200, {"experiment": EXPERIMENT}
            case "experiments/search":
                return 200, {"experiments": [EXPERIMENT]}
            case "runs/search":
                return 200, {"runs": []}
            case "runs/create" | "runs/get":
                return 200, {"run": self.run()}
            case "runs/log-batch":
                return self.take(asked)
            case "runs/update":
                self.run_status = asked.get("status", self.run_status)
                return 200, {"run_info": self.run()["info"]}
        return 200, {}

    def take(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        metrics = asked.get("metrics", [])
        if any(metric["key"] == self.refused for metric in metrics):
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"{self.refused} is no metric"}
        for metric in metrics:
            self.points[metric["key"]].append((int(metric["step"]), float(metric["value"])))
        self.tags |= {tag["key"]: tag["value"] for tag in asked.get("tags", [])}
        self.params |= {param["key"]: param["value"] for param in asked.get("params", [])}
        return 200, {}

    def listed(self, folder: str) -> list[dict[str, Any]]:
        inside = [path.removeprefix(f"{folder}/").split("/") for path in self.files if path.startswith(f"{folder}/")]
        return [{"path": name, "is_dir": is_dir} for name, is_dir in sorted({(i[0], len(i) > 1) for i in inside})]

    def run(self) -> dict[str, Any]:
        info = {"run_id": self.run_id, "experiment_id": "1", "status": self.run_status, "run_name": "there"}
        last = [{"key": key, "value": steps[-1][1], "step": steps[-1][0]} for key, steps in self.points.items()]
        tags = [{"key": key, "value": value} for key, value in self.tags.items()]
        location = self.location or f"mlflow-artifacts:/1/{self.run_id}/artifacts"
        return {"info": {**info, "artifact_uri": location, "start_time": 0}, "data": {"metrics": last, "tags": tags}}
