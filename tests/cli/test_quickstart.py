"""The quickstart as `make quickstart` runs it, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seqlab_data.text_source import find_documents

ROOT = Path(__file__).parents[2]
ONE_NUMBER = r"\s+([\d.]+)(k?)"


@pytest.mark.slow
def test_the_main_job(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "quickstart.sh")],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, *shown = done.stdout.split("$ seqlab compare ")
    assert len(shown) == 1
    table, shown_export, sample = re.split(r"\$ seqlab (?:export|generate) [^\n]*\n", shown[0])

    rows = re.findall(rf"^\d +([\w-]+){4 * ONE_NUMBER} .*FINISHED", table, flags=re.MULTILINE)
    assert {row[0] for row in rows} == {"gru", "attention-nope", "attention-rope"}, table
    params = [float(row[5]) for row in rows]
    assert max(params) <= 1.05 * min(params)
    assert all(float(row[3]) < 3.5 for row in rows), "bits per character"
    assert len(re.findall(r"│ ok  ", shown_export)) == 6

    known = set(re.findall(r"[^\W\d_]{3,}", " ".join(document.read() for document in find_documents(None))))
    words = re.findall(r"[^\W\d_]{3,}", sample)
    share = sum(word in known for word in words) / len(words)
    assert len(words) >= 10 and share >= 0.6, f"{share:.0%} of {words} occur in the training text"
