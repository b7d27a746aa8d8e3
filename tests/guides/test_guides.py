"""The commands of the guides are run, a page in a folder of its own, with fits of three steps.

What a command prints is shown below the date of the machine that printed it, and is not compared.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from repository.source_tree import ROOT, python_blocks
from runtime.programs import ENVIRONMENT, build
from seqlab_export.page.html import TEMPLATE

DOCS = ROOT / "docs"
PAGES = ["start.md", *sorted(page.relative_to(DOCS).as_posix() for page in (DOCS / "guides").glob("*.md"))]
BLOCK = re.compile(r"([^\n]*)\n+```console\n(.*?)```", flags=re.DOTALL)
SHORT = "--trainer.max_steps=3 --trainer.limit_val_batches=2 --trainer.limit_test_batches=2"
SEQLAB = f"""#!/bin/bash
case $1 in fit|sweep) set -- "$@" {SHORT} ;; esac
exec {Path(sys.executable).with_name("seqlab")} "$@"
"""
MAKE = f"""#!/bin/bash
case $* in
  quickstart) mkdir -p .venv/bin && touch .venv/bin/activate && exec bash {ROOT}/scripts/quickstart.sh ;;
  web) ;;
  cpp) mkdir -p build/cpp && ln -sf "$SEQLAB_RUN" build/cpp/ ;;
  *) exit 1 ;;
esac
"""
"""In place of the recipes, which install and build: tests/cli/test_quickstart.py, tests/runtime, tests/web."""


def shown(page: str) -> list[tuple[str, list[str], bool]]:
    """Of each console block: the line above it, its commands, and whether it shows what they print."""
    found = []
    for above, block in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        lines = re.sub(r" \\\n +", " ", block).splitlines()
        typed = [line for line in lines if line.startswith(("$ ", "> "))]
        commands = "\n".join(line[2:] if line[0] == ">" else f"\0{line[2:]}" for line in typed).split("\0")[1:]
        found.append((above, [command.rstrip() for command in commands], len(typed) < len(lines)))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_what_is_printed_has_the_date_of_its_machine(page: str) -> None:
    blocks = shown(page)
    assert blocks
    dated = False
    for above, commands, prints in blocks:
        assert commands, f"{page}: a block without a command, below {above}"
        dated = dated or re.search(r"\d{4}-\d\d-\d\d", above) is not None
        assert not prints or dated, f"{page}: a block that shows output, below {above}"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    commands = [command for _, block, _ in shown(page) for command in block]
    if "make web" in commands and not TEMPLATE.is_file():
        pytest.skip("needs the page's template: make web")
    _write_files(tmp_path, page)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, script in (("seqlab", SEQLAB), ("make", MAKE)):
        (bin_folder / name).write_text(script)
        (bin_folder / name).chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "SEQLAB_CACHE": str(tmp_path / "cache")}
    if "make cpp" in commands:
        environment |= {"SEQLAB_RUN": str(build("seqlab-run"))}
    for command in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"


def _write_files(folder: Path, page: str) -> None:
    """Those that the commands name: of the reader, and of the page itself."""
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")
    (folder / "pairs.tsv").write_text("".join(f"one {n}\teins {n}\n" for n in range(60)), encoding="utf-8")
    (folder / "sources.txt").write_text("one 3\none 4\n", encoding="utf-8")
    labelled = "".join(f"{'good' if n % 2 else 'bad'} film {n}\n" for n in range(60))
    (folder / "labelled.txt").write_text(labelled, encoding="utf-8")
    (folder / "texts.txt").write_text("good film 7\n", encoding="utf-8")
    (folder / "tagged.conll").write_text("".join(f"film\tO\n{n}\tB-NUM\n\n" for n in range(60)), encoding="utf-8")
    (folder / "sentences.txt").write_text("film 7\n", encoding="utf-8")
    np.savez(folder / "images.npz", images=np.random.default_rng(0).random((60, 4, 4)), labels=np.arange(60) % 2)
    rolls = {"spectrum": [[[n, 0.5], [1.5, n]] for n in range(60)], "energy": [[0.5, 1.0]] * 60}
    parquet.write_table(pa.table({**rolls, "notes": [[[0, 1], [1, 1]]] * 60}), folder / "rolls.parquet")
    (folder / "decay.py").write_text(python_blocks("docs/guides/own-mixer.md")[0], encoding="utf-8")
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, yaml in re.findall(r"`(\w+\.yaml)`[^`]*\n\n```yaml\n(.*?)```", text, flags=re.DOTALL):
        (folder / name).write_text(yaml, encoding="utf-8")
