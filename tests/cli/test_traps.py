"""No verb runs a file of the working folder because a library looks for a module of that name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import TINY, Seqlab, write_text
from cli.test_import_hf import save
from seqlab import cli
from seqlab.working_folder import WorkingFolder, add_working_folder

RAN = "traps-that-ran"
LAYS_TRAPS = f'''
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Lays:
    """Asked before the working folder is: whatever nothing installed has lies there from now on."""

    names = []

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name.isidentifier() and not Path(name + ".py").exists() and Path("text.txt").exists():
            cls.names.append(name)
            trap = f"with open({str(RAN)!r}, 'a') as file: file.write({{name!r}} + ' ')\\n"
            Path(name + ".py").write_text(trap)
            PathFinder.invalidate_caches()
        return None


sys.meta_path.append(Lays)
'''
CLASSIFY = [
    *("--config=classify/bag-of-words", "--data.train=labelled.txt", "--model.model.d_model=16"),
    *("--trainer.max_epochs=1", "--run_name=kinds"),
]
TRANSLATE = [
    *("--config=translate/rnn", "--data.train=pairs.tsv", "--data.val=pairs.tsv", "--model.model.d_model=16"),
    *("--trainer.max_steps=2", "--trainer.val_check_interval=1", "--run_name=pairs"),
]
VERBS: tuple[list[str], ...] = (
    ["fit", "--config=lm/attention-rope", *TINY, "--run_name=first"],
    ["fit", *CLASSIFY],
    ["fit", *TRANSLATE],
    ["import-hf", "imported"],
    ["generate", "first", "--max-new-tokens=2"],
    ["generate", "first.ckpt", "--max-new-tokens=2"],
    ["classify", "kinds"],
    ["translate", "pairs"],
    ["export", "first", "--out=bundle"],
    ["export", "kinds", "--out=kinds-bundle"],
    ["verify", "bundle"],
    ["verify", "kinds-bundle", "--all"],
    ["generate", "bundle", "--max-new-tokens=2"],
    ["classify", "kinds-bundle"],
    ["page", "bundle", "--out=page.html"],
    ["inspect", "first", "--out=inside.html"],
    ["promote", "bundle"],
    ["compare", "first", "kinds", "--out=report.html"],
    ["validate", "first"],
    ["test", "kinds"],
    ["predict", "kinds"],
    ["resume", "first", "--trainer.max_steps=6"],
    ["profile", "--config=lm/attention-rope", *TINY, "--steps=1"],
    ["estimate", "--config=lm/gru", "--tokens=1e6"],
    ["parity", "--models=first.ckpt", "--precisions=fp32"],
    ["conformance", "--mixers=GRU", "--positions=NoPositions"],
    ["submit", "--config=lm/gru", *TINY],
    ["sweep", "--config=lm/gru", "--vary=model.model.num_layers=1,2", "--sampler=grid", "--", *TINY[:4], *TINY[5:8]],
    ["study", "list"],
    ["consolidate", "first.ckpt"],
    ["configs", "lm/gru"],
    ["env"],
)
TYPES_THEM = """
import io
import json
import shutil
import sys
import time
from pathlib import Path

from seqlab.cli import main

for verb in json.loads(sys.argv[1]):
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"the fox 1\\n"))
    begun = time.monotonic()
    print(json.dumps([verb, main(verb), round(time.monotonic() - begun)]), file=sys.stderr)
    if not Path("first.ckpt").exists():
        shutil.copy(next(Path().glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt")), "first.ckpt")
"""
"""One process for all verbs: each import of a library runs once, for the first verb that gets there."""
CODES = {"consolidate": 2}
"""Exit codes of verbs that refuse what they find here, once they have read it."""


def _ran(folder: Path) -> str:
    return (folder / RAN).read_text(encoding="utf-8") if (folder / RAN).exists() else ""


@pytest.mark.filterwarnings("ignore")
def test_a_few_verbs_in_this_process(
    fitted: tuple[Path, Seqlab], inside: Callable[[Path], Seqlab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = fitted
    (tmp_path / "text.txt").write_bytes((home / "text.txt").read_bytes())
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if finder is not WorkingFolder])
    lays: dict[str, Any] = {}
    exec(LAYS_TRAPS, lays)
    add_working_folder()
    seqlab = inside(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlruns/mlflow.db")
    for verb in (["generate", "first", "--max-new-tokens=2"], ["compare", "first"], ["validate", "first"]):
        seqlab(*verb)
    with pytest.raises(ModuleNotFoundError):
        __import__("a_module_that_nobody_has")
    assert "a_module_that_nobody_has" in lays["Lays"].names
    assert _ran(tmp_path) == ""
    PathFinder.invalidate_caches()


@pytest.mark.slow
def test_every_verb(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LAYS_TRAPS, encoding="utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    write_text(folder)
    (folder / "labelled.txt").write_text("".join(f"{number % 2} the fox {number}\n" for number in range(400)))
    (folder / "pairs.tsv").write_text("the fox\til gatto\n" * 40, encoding="utf-8")
    save("gpt2", folder / "imported")
    page = find_spec("seqlab_export.page.html")
    assert page is not None and page.origin is not None
    assert Path(page.origin).with_name("template.html").exists(), "`make web` makes what `page` and `inspect` need"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SEQLAB_CACHE": str(folder / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    typed = [sys.executable, "-P", "-c", TYPES_THEM, json.dumps(VERBS)]
    done = subprocess.run(typed, cwd=folder, env=env, capture_output=True, text=True, timeout=1800)
    print(done.stderr)  # with each verb's seconds
    assert done.returncode == 0
    codes = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[[")]
    assert [(verb, CODES.get(verb[0], 0)) for verb in VERBS] == [(verb, code) for verb, code, _ in codes], done.stderr
    _check_ui(folder, env)
    assert {verb[0] for verb in VERBS} == {verb.name for verb in cli.VERBS} - {"ui"}
    assert _ran(folder) == ""
    assert len([*folder.glob("*.py")]) > 20


def _check_ui(folder: Path, env: dict[str, str]) -> None:
    """MLflow's server is of other processes, and answers when all is imported."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = subprocess.Popen(
        [sys.executable, "-P", "-m", "seqlab", "ui", f"--port={port}"],
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(120):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                assert answer.status == 200
                return
            time.sleep(1)
        raise AssertionError("MLflow's server does not answer")
    finally:
        os.killpg(served.pid, signal.SIGTERM)
        served.wait()
