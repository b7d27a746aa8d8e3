"""The part of an MLflow server that a fit writes to, in this process: quick to start, and as rude as a test needs."""

from __future__ import annotations

import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PREFIX = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts"


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

    def __init__(self, address: str) -> None:
        self.address, self.run_id = address, uuid.uuid4().hex  # MLflow caches the addresses of a run's files
        self.status, self.refused, self.answers = 200, "", threading.Event()
        self.answers.set()
        self.points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.tags: dict[str, str] = {}
        self.params: dict[str, str] = {}
        self.uploaded: list[str] = []
        self.files: dict[str, bytes] = {}
        self.run_status = "RUNNING"

    def answer(self, what: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match what:
            case "experiments/get-by-name" | "experiments/get":
                return 200, {"experiment": {"experiment_id": "1", "name": "remote", "lifecycle_stage": "active"}}
            case "experiments/search":
                return 200, {"experiments": [{"experiment_id": "1", "name": "remote", "lifecycle_stage": "active"}]}
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


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path)
            writes = self.command != "GET" and not path.path.endswith(("create", "search"))
            if writes:
                fake.answers.wait()
            if writes and fake.status != 200:
                code, said = fake.status, b"go away"
            else:
                if self.command == "PUT":
                    fake.uploaded.append(path.path.rpartition("/")[2])
                    fake.files[path.path.removeprefix(f"{FILES}/")] = body
                asked = parse_qs(path.query) if self.command == "GET" or b"{" not in body[:1] else json.loads(body)
                code, found = fake.answer(path.path.removeprefix(PREFIX), asked)
                if self.command == "GET" and path.path == FILES:
                    found = {"files": fake.listed(asked["path"][0])}
                stored = fake.files.get(path.path.removeprefix(f"{FILES}/")) if self.command == "GET" else None
                said = json.dumps(found).encode() if stored is None else stored
            self.send_response(code)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake = FakeServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
