"""No verb runs a file of the working folder because a library looks for a module of that name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import TINY, write_text
from cli.test_import_hf import save
from seqlab import cli
from seqlab_export.page.html import TEMPLATE
from servers import free_port, running

RAN = "traps-that-ran"
LAYS_TRAPS = f'''
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Lays:
    """Asked before the working folder is: whatever nothing installed has lies there from now on."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name.isidentifier() and not Path(name + ".py").exists() and Path("text.txt").exists():
            trap = f"with open({RAN!r}, 'a') as file: file.write({{name!r}} + ' ')\\n"
            Path(name + ".py").write_text(trap)
            PathFinder.invalidate_caches()
        return None


sys.meta_path.append(Lays)
'''
TINY_FLAGS = " ".join(TINY)
SMALL = "--model.model.d_model=16 --trainer.max_steps=2 --trainer.val_check_interval=1"
VERBS = (
    f"fit --config=lm/attention-rope {TINY_FLAGS} --run_name=first",
    "fit --config=classify/bag-of-words --data.train=labelled.txt --model.model.d_model=16 --trainer.max_epochs=1 "
    "--run_name=kinds",
    f"fit --config=translate/rnn --data.train=pairs.tsv --data.val=pairs.tsv {SMALL} --run_name=pairs",
    "import-hf imported",
    "generate first --max-new-tokens=2",
    "generate first.ckpt --max-new-tokens=2",
    "classify kinds",
    "translate pairs",
    "export first --out=bundle",
    "export kinds --out=kinds-bundle",
    "verify bundle",
    "verify kinds-bundle --all",
    "generate bundle --max-new-tokens=2",
    "classify kinds-bundle",
    "page bundle --out=page.html",
    "inspect first --out=inside.html",
    "promote bundle",
    "compare first kinds --out=report.html",
    "validate first",
    "test kinds",
    "predict kinds",
    "resume first --trainer.max_steps=6",
    f"profile --config=lm/attention-rope {TINY_FLAGS} --steps=1",
    "estimate --config=lm/gru --tokens=1e6",
    "parity --models=first.ckpt --precisions=fp32",
    "conformance --mixers=GRU --positions=NoPositions",
    f"submit --config=lm/gru {TINY_FLAGS}",
    "sweep --config=lm/gru --vary=model.model.num_layers=1,2 --sampler=grid -- "
    + " ".join(flag for flag in TINY if "num_layers" not in flag and "experiment" not in flag),
    "study list",
    "consolidate first.ckpt",
    "configs lm/gru",
    "env",
    "serve first --port=65536",
)
CODES = {"consolidate": 2, "serve": 2}
"""Exit codes of verbs that refuse what they find here, once they have read it."""
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
    print(json.dumps([verb, main(verb.split()), round(time.monotonic() - begun)]), file=sys.stderr)
    if not Path("first.ckpt").exists():
        shutil.copy(next(Path().glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt")), "first.ckpt")
try:
    import a_module_that_nobody_has
except ModuleNotFoundError:
    pass
"""
"""One process for all verbs: each import of a library runs once, for the first verb that gets there."""


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
    assert TEMPLATE.exists(), "`make web` makes what `page` and `inspect` need"
    env = {**os.environ, "SEQLAB_CACHE": str(folder / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    python = [sys.executable, "-P"]
    typed = [*python, "-c", TYPES_THEM, json.dumps(VERBS)]
    done = subprocess.run(typed, cwd=folder, env=env, capture_output=True, text=True, timeout=1800)
    print(done.stderr)  # with each verb's seconds
    assert done.returncode == 0
    codes = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('["')]
    expected = [(verb, CODES.get(verb.split()[0], 0)) for verb in VERBS]
    assert [(verb, code) for verb, code, _ in codes] == expected, done.stderr
    # MLflow's server is of other processes, and answers when all is imported.
    port = free_port()
    with running([*python, "-m", "seqlab", "ui", f"--port={port}"], env, f"http://127.0.0.1:{port}/health", folder):
        pass
    assert {verb.split()[0] for verb in VERBS} == {verb.name for verb in cli.VERBS} - {"ui"}
    assert (folder / "a_module_that_nobody_has.py").exists() and len([*folder.glob("*.py")]) > 20
    assert not (folder / RAN).exists()
