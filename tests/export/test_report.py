"""The report reads well and holds every number."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from export.toys import Shared
from seqlab_export.runner.report import Check, Report


def printed(report: Report) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(report.table())
    return console.export_text()


def test_a_good_report(shared: Shared) -> None:
    report = shared("attention").report
    text = printed(report)
    assert len(text.splitlines()) < 20
    assert "failed" not in text and text.count("ok") == len({check.kind for check in report.checks}) == 10
    content = json.loads(json.dumps(report.to_dict()))
    assert content["ok"] is True and len(content["checks"]) == len(report.checks) > 200


def test_the_row_shows_the_cell_nearest_to_its_limit() -> None:
    checks = [
        Check(kind="prefill", subject="far", ok=True, error=4e-7, torch_error=4e-7, limit=8e-7, largest=9e-6),
        Check(kind="prefill", subject="near", ok=True, error=3e-7, torch_error=2e-7, limit=4e-7, largest=1e-6),
    ]
    [row] = [line for line in printed(Report("cpu", {}, "1.0", checks)).splitlines() if "prefill" in line]
    assert row.replace("│", " ").split() == ["prefill", "2", "3.0e-07", "2.0e-07", "75%", "9.0e-06", "ok"]


@pytest.mark.parametrize("error", [9e-7, math.nan])
def test_failures_are_named(error: float) -> None:
    check = Check(kind="step", subject="here", ok=False, note="too far", error=error, torch_error=1e-7, limit=2e-7)
    report = Report("cpu", {}, "1.0", [check])
    assert not report.ok and report.failures == [check]
    assert "1 failed" in printed(report) and "step: here: too far" in printed(report)
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_report_of_nothing_proves_nothing() -> None:
    assert not Report("cpu", {}, "1.0").ok
