"""The C++ runtime's programs, built once a checkout into build/, and what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "export" / "runtime"
TOOLS = ("cmake", "ninja", "c++")
LIBRARY = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)
"""The library of the wheel that Python runs."""

Command = list[str | Path]
ENVIRONMENT = os.environ | {"SEQLAB_ORT_LIB": str(LIBRARY)}


@cache
def build(target: str, sanitizers: str = "") -> Path:
    """A program of the runtime, up to date; skips the test where it cannot be built on this machine.

    Where $SEQLAB_PROGRAMS names a folder of built ones, it is taken from there.
    """
    if built := os.environ.get("SEQLAB_PROGRAMS"):
        return Path(built) / target
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or LIBRARY is None or sys.platform != "linux":
        pytest.skip(f"the C++ runtime needs Linux, {', '.join(TOOLS)} and onnxruntime's library; here is no {missing}")
    folder = ROOT / "build" / ("cpp-" + sanitizers.replace(",", "-") if sanitizers else "cpp")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / "cpp.lock"):
        configure: Command = ["cmake", "-S", RUNTIME, "-B", folder, "-G", "Ninja", f"-DSEQLAB_SANITIZE={sanitizers}"]
        done = subprocess.run(configure, capture_output=True, text=True)
        if "cannot fetch the C++ dependencies" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        command: Command = ["cmake", "--build", folder, "--parallel", "2", "--target", target]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout, done.stdout
    [program] = [path for path in folder.rglob(target) if path.is_file() and os.access(path, os.X_OK)]
    return program


def run(*arguments: str | Path, text: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Runs `seqlab-run` with these arguments and this standard input."""
    data = text if isinstance(text, bytes) else text.encode()
    command = [build("seqlab-run"), *arguments]
    return subprocess.run(command, input=data, capture_output=True, env=ENVIRONMENT | environment)


def refusal(*arguments: str | Path, text: str | bytes = "", **environment: str) -> str:
    """The one sentence with which `seqlab-run` refuses them."""
    done = run(*arguments, text=text, **environment)
    assert done.returncode == 2 and not done.stdout, done
    message = done.stderr.decode()
    assert message.startswith("seqlab-run: ") and message.count("\n") == 1, message
    return message.removeprefix("seqlab-run: ").rstrip("\n")


def answers(bundle: Path, questions: Sequence[dict[str, Any]], provider: str = "cpu") -> list[Any]:
    """The answer of `answer_decoding` to each question."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    command: Command = [build("answer_decoding"), bundle, provider]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
