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


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=os.environ | {"PATH": path})


def test_without_a_device_each_part_says_so() -> None:
    done = check()
    parts = [f"== {name}\nnot run: no CUDA device" for name in ("tests", "parity", "throughput", "training", "float8")]
    assert done.stdout == "\n" + "\n\n".join([*parts, "ok, 5 parts not run"]) + "\n"
    assert done.returncode == 0 and done.stderr == ""


def test_wheels_that_are_none_fail_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "broken-1.0-py3-none-any.whl").write_text("no wheel")
    done = check(tmp_path)
    assert done.stdout.count("not run: no CUDA device") == 5
    assert done.returncode == 1 and done.stdout.endswith(f"\nfailed: installing {tmp_path}\n")
