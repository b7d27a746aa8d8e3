"""The web runtime's programs in Node, bundled once a process into export/web/dist, and what they say."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

WEB = Path(__file__).parents[2] / "export" / "web"


@cache
def build(source: str) -> Path:
    """A program of `export/web`, as it is now; skips the test where Node or what `make web` installs is not here."""
    esbuild = WEB / "node_modules" / ".bin" / "esbuild"
    if shutil.which("node") is None or not esbuild.exists():
        pytest.skip("the web runtime needs Node, and `make web` to install what it uses; one of them is not here")
    program = (WEB / "dist" / source).with_suffix(".js")
    program.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(WEB / "dist" / "build.lock"):
        options = ["--bundle", "--platform=node", "--format=esm", "--target=es2022", "--external:onnxruntime-web"]
        command: list[str | Path] = [esbuild, WEB / source, *options, "--log-level=warning", f"--outfile={program}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
    return program


def run(source: str, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["node", build(source), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")


def answers(folder: Path | str, questions: Iterable[Any]) -> list[Any]:
    """The answer of `answer.ts` to each question, about a bundle, a tokenizer, or "-"."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = run("tests/answer.ts", folder, text=lines)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def refusal(folder: Path) -> str:
    """The one sentence with which the runtime refuses to open a bundle."""
    done = run("tests/answer.ts", folder)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, done
    return done.stderr.rstrip("\n")
