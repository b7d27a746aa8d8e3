"""Lightning's own messages are hidden from the user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from callbacks.tiny_fit import TinyData, TinyTask, fit
fit(Path(sys.argv[1]), max_epochs=1)
fit(Path(sys.argv[1]), max_epochs=2)
"""


@pytest.mark.slow
def test_a_fit_and_its_resumption_say_nothing_by_themselves(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run")],
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
