"""docs/architecture.md is what the imports say, and they have no circle."""

from __future__ import annotations

import subprocess
import sys

from repository.source_tree import ROOT


def test_the_page_is_of_these_files() -> None:
    """Made anew by `python scripts/architecture.py > docs/architecture.md`; it fails where rooms import in a circle."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "architecture.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8") == done.stdout
