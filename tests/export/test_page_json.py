"""Reports: what they print, and JSON for pages, without a number that browsers refuse."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from export.toys import Shared
from seqlab.files.finite_json import dumps, in_page
from seqlab_export.page import html
from seqlab_export.runner.report import Check, Report


def test_null_stands_for_what_is_not_finite() -> None:
    numbers = {"<": [(0, math.nan), [math.inf, -math.inf, 1.5]], "deep": {"er": (math.nan,)}}
    expected = {"<": [[0, None], [None, None, 1.5]], "deep": {"er": [None]}}
    for text in (dumps(numbers), in_page(numbers), dumps(numbers, indent=1)):
        assert json.loads(text, parse_constant=pytest.fail) == expected
    assert "<" not in in_page(numbers)


def test_the_page_of_a_run_whose_loss_is_none(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "template.html").write_text(f"<body>{html.PLACE}</body>")
    monkeypatch.setattr(html, "TEMPLATE", tmp_path / "template.html")
    points = [(1, 2.0), (2, math.nan), (3, math.inf)]
    run = {"name": "one", "experiment": "tests", "data": None, "curves": [{"name": "val/loss", "points": points}]}
    html.write_page([html.Shown("one", shared("gru").folder, run)], tmp_path / "page.html")
    [content] = re.findall(r'id="page">(.*?)</script>', (tmp_path / "page.html").read_text())
    [about] = json.loads(content, parse_constant=pytest.fail)["bundles"]
    assert about["run"]["curves"][0]["points"] == [[1, 2.0], [2, None], [3, None]]


def test_a_report_of_a_divergence_that_is_not_finite() -> None:
    report = Report("cpu", {}, "1.30", divergence={"kl": math.nan, "kl_p99": math.inf, "top1": 0.5})
    assert report.to_dict()["divergence"] == {"kl": None, "kl_p99": None, "top1": 0.5}


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
