"""JSON in a page has no number that browsers refuse."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from export.toys import Shared
from seqlab.finite_json import dumps, in_page
from seqlab_export.page import html
from seqlab_export.runner.report import Report


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
