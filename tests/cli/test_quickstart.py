"""The quickstart as `make quickstart` runs it, in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from seqlab_data.documents import find_documents

ROOT = Path(__file__).parents[2]
ONE_NUMBER = r"\s+([\d.]+)(k?)"


def stub(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def quickstart(folder: Path, programs: Path, **env: str) -> str:
    """Output of the script, with the programs of this folder first on the path."""
    path = f"{programs}:{os.environ['PATH']}"
    command = ["bash", str(ROOT / "scripts" / "quickstart.sh")]
    env = {**os.environ, "PATH": path, **env}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sample_begins_with_its_prompt_and_the_last_line_is_a_command(tmp_path: Path) -> None:
    stub(tmp_path / "bin" / "seqlab", "[ $1 = generate ] && echo 'names are bound.' || echo 0123abcd")
    said = quickstart(tmp_path, tmp_path / "bin")
    [(typed, sample)] = re.findall("\\$ (seqlab generate .*)\x1b.*\n(.*)", said)
    assert sample == "The names are bound."
    assert shlex.split(typed)[4] == "The ", "as a shell takes it"
    *_, enter, _, command = said.splitlines()
    assert enter.strip() == ". .venv/bin/activate"
    assert enter.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
    assert command.startswith("  seqlab fit --config lm/gru ")


def test_the_install_prints_one_line_and_errors(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    stub(tmp_path / "bin" / "python", "mkdir -p .venv")
    pip = 'case " $* " in *" -qq "*) ;; *) echo "WARNING: Location is ignored" >&2 ;; esac'
    stub(tmp_path / "bin" / "pip", pip)
    command = ["make", "--no-print-directory", ".venv/installed"]
    command += [f"PYTHON={tmp_path}/bin/python", f"BIN={tmp_path}/bin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1 and done.stderr == ""
    (tmp_path / ".venv" / "installed").unlink()
    stub(tmp_path / "bin" / "pip", f"{pip}; echo 'ERROR: no such version' >&2; exit 1")
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode != 0 and "ERROR: no such version" in failed.stderr


@pytest.mark.slow
def test_the_main_job(tmp_path: Path) -> None:
    said = quickstart(tmp_path, Path(sys.executable).parent, COLUMNS="160")
    _, *shown = said.split("$ seqlab compare ")
    assert len(shown) == 1
    table, shown_export, sample = re.split(r"\$ seqlab (?:export|generate) [^\n]*\n", shown[0])

    rows = re.findall(rf"^\d +([\w-]+){3 * ONE_NUMBER} ", table, flags=re.MULTILINE)
    assert {row[0] for row in rows} == {"gru", "attention-nope", "attention-rope"}, table
    params = [float(row[5]) for row in rows]
    assert max(params) <= 1.05 * min(params)
    assert all(float(row[3]) < 3.5 for row in rows), "bits per character"
    start = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    assert re.findall(r"│ (\w+) .*│ ok  ", shown_export) == re.findall(r"│ (\w+) .*│ ok  ", start)

    sample, _, _ = sample.partition("\nThe command seqlab ")
    assert sample.startswith("The ")
    known = set(re.findall(r"[^\W\d_]{3,}", " ".join(document.read() for document in find_documents(None))))
    words = re.findall(r"[^\W\d_]{3,}", sample)
    share = sum(word in known for word in words) / len(words)
    assert len(words) >= 10 and share >= 0.6, f"{share:.0%} of {words} occur in the training text"
