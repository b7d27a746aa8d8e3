"""The web runtime's own tests, by Node."""

from __future__ import annotations

import json
import subprocess

import pytest

from web.programs import WEB, build, run


@pytest.mark.parametrize("source", sorted(path.name for path in (WEB / "tests").glob("*.test.ts")))
def test_a_part(source: str) -> None:
    done = subprocess.run(["node", "--test", build(f"tests/{source}")], capture_output=True, text=True)
    assert done.returncode == 0 and "# fail 0" in done.stdout and "# tests 0" not in done.stdout, done.stdout


def test_types() -> None:
    build("tools/verify.ts")
    done = subprocess.run([WEB / "node_modules" / ".bin" / "tsc", "--noEmit"], cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_view_tells_its_latest_failure_only_and_older_work_knows_that_it_is_old() -> None:
    done = run("tests/latest.ts")
    assert not done.stderr and sorted(json.loads(done.stdout)) == ["failed: third", "not wanted"]
