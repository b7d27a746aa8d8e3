"""The web runtime's own tests, by Node."""

from __future__ import annotations

import subprocess

import pytest

from web.programs import WEB, build


@pytest.mark.parametrize("source", sorted(path.name for path in (WEB / "tests").glob("*.test.ts")))
def test_a_part(source: str) -> None:
    done = subprocess.run(["node", "--test", build(f"tests/{source}")], capture_output=True, text=True)
    assert done.returncode == 0 and "# fail 0" in done.stdout and "# tests 0" not in done.stdout, done.stdout


def test_types() -> None:
    build("tools/verify.ts")
    done = subprocess.run([WEB / "node_modules" / ".bin" / "tsc", "--noEmit"], cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
