"""`make gallery`, with fits of three steps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from repository.source_tree import ROOT
from seqlab_export.page.html import TEMPLATE

SHORT = ("--trainer.max_steps=3", "--trainer.limit_val_batches=1")


@pytest.mark.slow
@pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web")
def test_each_model_has_a_page_and_the_index_leads_to_it(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts/gallery.py", *SHORT], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    index = (tmp_path / "build/gallery/index.html").read_text(encoding="utf-8")
    pages = re.findall(r'href="([^"]+)"', index)
    assert pages == ["gru.html", "attention.html", "mamba.html", "dates.html", "digits.html", "compare.html"]
    for page in pages:
        text = (tmp_path / "build/gallery" / page).read_text(encoding="utf-8")
        assert text.count('data-path="manifest.json"') == (3 if page == "compare.html" else 1)
    again = subprocess.run([sys.executable, ROOT / "scripts/gallery.py"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode != 0 and "build/gallery exists" in again.stderr
