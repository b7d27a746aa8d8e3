"""`scripts/gpu_check.sh` says what it could not run, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device, so that it would run for minutes"),
]


def test_what_cannot_run_says_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    def check(*arguments: Path) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=os.environ | {"PATH": path})

    done = check()
    parts = [f"== {name}\nnot run: no CUDA device" for name in ("tests", "parity", "throughput", "training", "float8")]
    assert done.stdout == "\n" + "\n\n".join([*parts, "ok, 5 parts not run"]) + "\n"
    assert done.returncode == 0 and done.stderr == ""

    (tmp_path / "broken-1.0-py3-none-any.whl").write_text("no wheel")
    done = check(tmp_path)
    assert done.stdout.count("not run: no CUDA device") == 5
    assert done.returncode == 1 and done.stdout.endswith(f"\nfailed: installing {tmp_path}\n")
