"""Pages as they are typed: of a run, of its bundle, and of what happens inside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Seqlab
from seqlab_export.page.html import LOOK_INSIDE, TEMPLATE, TRY_IT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web"),
]
CONTENT = re.compile(r'<script type="application/json" id="page">(.*?)</script>')
PATHS = re.compile(r'data-bundle="0" data-path="([^"]*)"')


def content(page: Path) -> dict[str, Any]:
    (found,) = CONTENT.findall(page.read_text(encoding="utf-8"))
    told: dict[str, Any] = json.loads(found)
    return told


def test_each_verb_writes_a_page_that_knows_its_run(
    fitted: tuple[Path, Seqlab], inside: Callable[[Path], Seqlab], tmp_path: Path
) -> None:
    seqlab = inside(fitted[0])
    of_run, of_bundle, within = (tmp_path / f"{name}.html" for name in ("run", "bundle", "inside"))
    seqlab("export", "first", "--format", "html", "--out", str(of_run))
    seqlab("export", "first", "--out", str(tmp_path / "bundle"))
    seqlab("page", str(tmp_path / "bundle"), "--out", str(of_bundle))
    seqlab("inspect", "first", "--text", "the <fox>", "--out", str(within))
    for page, tab, text in ((of_run, TRY_IT, ""), (of_bundle, TRY_IT, ""), (within, LOOK_INSIDE, "the <fox>")):
        told = content(page)
        assert (told["tab"], told["text"]) == (tab, text)
        (about,) = told["bundles"]
        assert about["name"] == about["run"]["name"] == "first" and about["run"]["data"]
        assert "val/loss" in {curve["name"] for curve in about["run"]["curves"]}
    taps = [page for page in (of_run, of_bundle, within) if "taps.onnx" in PATHS.findall(page.read_text("utf-8"))]
    assert taps == [within]

    refused = seqlab("inspect", str(tmp_path / "bundle"), "--out", str(tmp_path / "none.html"), code=2)
    assert "has no taps; give its run, or export it with --taps attention,state" in refused.stderr
    assert "exists; give a new file" in seqlab("page", str(tmp_path / "bundle"), "--out", str(of_run), code=2).stderr
    assert not (tmp_path / "none.html").exists()
