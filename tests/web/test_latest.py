"""A view of a page tells nothing of an older text once there is a newer one."""

from __future__ import annotations

import json

from web.programs import run


def test_only_the_latest_failure_is_told_and_older_work_knows_that_it_is_old() -> None:
    done = run("tests/latest.ts")
    assert not done.stderr and sorted(json.loads(done.stdout)) == ["failed: third", "not wanted"]
