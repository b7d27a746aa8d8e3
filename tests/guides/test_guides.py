"""The commands of README and docs are run, a page in a folder of its own, with fits of three steps.

What a command prints is shown below the date of the machine that printed it, and is not compared, but for a refusal.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from repository.source_tree import ROOT, python_blocks
from runtime.programs import ENVIRONMENT, build
from seqlab_export.page.html import TEMPLATE

PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```console\n" in page.read_text(encoding="utf-8")
]
BEFORE = {
    "docs/page.md": (
        "seqlab fit --config lm/gru --run_name gru",
        "seqlab fit --config lm/attention-rope --run_name rope",
        "seqlab export gru --out bundles/gru",
        "seqlab export rope --out bundles/rope",
    ),
    "docs/runtime.md": ("seqlab fit --config lm/gru --run_name mine", "seqlab export mine --out bundles/mine"),
    "docs/serving.md": ("seqlab fit --config lm/gru --run_name first --experiment tiny",),
}
"""Commands that a page assumes to have been run."""
ELSEWHERE = {
    "--trainer.accelerator gpu": "a GPU: scripts/gpu_check.sh",
    "torchrun ": "processes of another launcher: tests/scale",
    "seqlab resume spread ": "whole epochs: tests/scale/test_resumed.py",
    "--trainer.logger wandb": "the package wandb: tests/cli/test_lightning_cases.py",
    "presets/gpt2 --data.path": "a large text: tests/data/test_large_text.py",
    "seqlab_export.harness ": "tasks of the harness: tests/export/test_harness.py",
    "hf:": "a dataset of Hugging Face: tests/data/test_hub.py",
    "--trials 30": "ninety fits: tests/sweeps",
    "seqlab serve ": "a server that runs on: tests/runtime/test_serve.py",
    "runtime/load.py ": "a server: tests/runtime/test_serve.py",
    "curl ": "a server: tests/cli/test_serving.py, tests/export/test_triton_server.py",
    "pip install ": "an empty environment: tests/export/test_bare_environment.py",
    "cmake --install ": "a build: tests/runtime/test_build.py",
    " image/": "a build: tests/runtime/test_deploy.py",
    "docker build ": "a container engine: tests/runtime/test_deploy.py",
    "kubectl ": "a cluster: tests/runtime/test_deploy.py",
    "cpack ": "a build: tests/runtime/test_build.py",
    "apt-get install ": "a bare system: tests/runtime/test_build.py",
    "make leaderboard": "hours: tests/repository/test_scripts.py",
    "make crossing": "hours: tests/repository/test_crossing.py",
    "chromium ": "a browser",
}
"""Commands that are not run here: what each needs, and what tests it."""
SHORT = "--trainer.max_steps=3 --trainer.limit_val_batches=2 --trainer.limit_test_batches=2"
SEQLAB = f"""#!/bin/bash
case $1 in fit|sweep) set -- "$@" {SHORT} ;; esac
exec {sys.executable} -IS {ROOT}/tests/warm.py ask "$WARM" "$@"
"""
MAKE = f"""#!/bin/bash
case $* in
  quickstart) mkdir -p .venv/bin && touch .venv/bin/activate && exec bash {ROOT}/scripts/quickstart.sh ;;
  web | test) ;;
  cpp) mkdir -p build/cpp && ln -sf "$SEQLAB_RUN" build/cpp/ ;;
  *) exit 1 ;;
esac
"""
"""In place of the recipes, which install and build: tests/cli/test_quickstart.py, tests/runtime, tests/web."""


class Command(NamedTuple):
    typed: str
    printed: str


def blocks(page: str) -> list[tuple[str, list[Command]]]:
    """Each block of a page: the paragraph above it, and its commands with the output that it shows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"((?:[^\n]+\n)*)\n*```console\n(.*?)```", text, flags=re.DOTALL)
    return [(above, list(commands(block))) for above, block in found]


def commands(block: str) -> Iterator[Command]:
    first, *rest = re.split(r"^\$ ", re.sub(r" \\\n +", " ", block), flags=re.MULTILINE)
    assert not first, f"a block that begins without a command: {first}"
    for one in rest:
        typed, *lines = one.splitlines()
        more = list(itertools.takewhile(lambda line: line.startswith("> "), lines))
        yield Command("\n".join([typed, *(line[2:] for line in more)]), "\n".join(lines[len(more) :]))


def is_refusal(printed: str) -> bool:
    return printed.startswith("seqlab: ")


def is_run(typed: str) -> bool:
    return not any(needs in typed for needs in ELSEWHERE)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_printed_has_the_date_of_its_machine(page: str) -> None:
    shown = [above for above, block in blocks(page) if any(p and not is_refusal(p) for _, p in block)]
    shown += re.findall(r"((?:[^\n]+\n)*)\n*```text\n", (ROOT / page).read_text(encoding="utf-8"))
    assert [above for above in shown if not re.search(r"\d{4}-\d\d-\d\d", above)] == []


def test_what_is_not_run_is_in_a_page() -> None:
    typed = [command.typed for page in PAGES for _, block in blocks(page) for command in block]
    assert [needs for needs in ELSEWHERE if not any(needs in one for one in typed)] == []
    tried = [path for why in ELSEWHERE.values() for path in re.findall(r"(?:tests|scripts)/[\w/.]+", why)]
    assert [path for path in tried if not (ROOT / path).exists()] == []


@pytest.fixture(scope="module", name="warm")
def _warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a process that has imported seqlab."""
    path = tmp_path_factory.mktemp("warm") / "socket"
    command = [sys.executable, str(ROOT / "tests/warm.py"), "serve", str(path)]
    # Pipes: in a file Python would seek.
    pipe, environment = subprocess.PIPE, ENVIRONMENT | {"PYTHONSAFEPATH": "1"}
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as server:
        while not path.exists() and server.poll() is None:
            time.sleep(0.1)
        yield path
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(page: str, warm: Path, tmp_path: Path) -> None:
    run = [Command(typed, "") for typed in BEFORE.get(page, ())]
    run += [command for _, block in blocks(page) for command in block if is_run(command.typed)]
    if any(re.search(r"make web|seqlab page|seqlab inspect", typed) for typed, _ in run) and not TEMPLATE.is_file():
        pytest.skip("needs the page's template: make web")
    _write_files(tmp_path, page)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, script in (("seqlab", SEQLAB), ("make", MAKE)):
        (bin_folder / name).write_text(script)
        (bin_folder / name).chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "SEQLAB_CACHE": str(tmp_path / "cache")}
    environment["WARM"] = str(warm)
    if any(typed.startswith("make cpp") for typed, _ in run):
        environment |= {"SEQLAB_RUN": str(build("seqlab-run"))}
    for typed, printed in run:
        shell, given = ["bash", "-euo", "pipefail", "-c", typed], subprocess.DEVNULL
        done = subprocess.run(
            shell, cwd=tmp_path, env=environment, stdin=given, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == (2 if is_refusal(printed) else 0), f"$ {typed}\n{done.stdout}{done.stderr}"
        if is_refusal(printed):
            assert done.stderr.splitlines()[-1] == printed


def _write_files(folder: Path, page: str) -> None:
    """Writes the files that the commands name: the reader's, and the page's own."""
    (folder / "books").mkdir()
    for name, text in {
        "books/one.txt": "It was a dark and stormy night. " * 200,
        "pairs.tsv": "".join(f"one {n}\teins {n}\n" for n in range(60)),
        "sources.txt": "one 3\none 4\n",
        "labelled.txt": "".join(f"{'good' if n % 2 else 'bad'} film {n}\n" for n in range(60)),
        "texts.txt": "good film 7\n",
        "tagged.conll": "".join(f"film\tO\n{n}\tB-NUM\n\n" for n in range(60)),
        "sentences.txt": "film 7\n",
        "decay.py": python_blocks("docs/guides/own-mixer.md")[0],
        **_named_files((ROOT / page).read_text(encoding="utf-8")),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    np.savez(folder / "images.npz", images=np.random.default_rng(0).random((60, 4, 4)), labels=np.arange(60) % 2)
    rolls = {"spectrum": [[[n, 0.5], [1.5, n]] for n in range(60)], "energy": [[0.5, 1.0]] * 60}
    parquet.write_table(pa.table({**rolls, "notes": [[[0, 1], [1, 1]]] * 60}), folder / "rolls.parquet")
    if page == "docs/guides/fine-tune.md":
        pytest.importorskip("transformers")
        from cli.test_import_hf import save

        save("llama", folder / "small")


def _named_files(text: str) -> dict[str, str]:
    return dict(re.findall(r"`(\w+\.yaml)`[^`]*\n\n```yaml\n(.*?)```", text, flags=re.DOTALL))
