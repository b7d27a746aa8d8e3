"""Figures of studies: what a slider shows, how axes are written, and that what is stored can be seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import vl_convert

from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.find import find_study
from seqlab.study.rules import Verdict

STORED = sorted((Path(__file__).parents[2] / "docs" / "studies").glob("*.json"))
PLACES = (64, 256, 4096)
"""Places as far apart as lengths of texts, and unequally spaced."""


def drawn(spec: dict[str, Any]) -> str:
    return str(vl_convert.vegalite_to_svg(spec))


def marks(svg: str) -> dict[str, str]:
    """Attributes of the marks that show data, by label; rules and texts are left out."""
    return dict(re.findall(r'<path aria-label="([^"]*)" role="graphics-symbol"([^>]*)>', svg))


def colour(mark: str) -> str:
    found = re.search(r'(?:fill|stroke)="([^"]+)"', mark)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("at", range(len(PLACES)))
def test_a_slider_shows_each_line_at_one_place(at: int) -> None:
    sizes = {"a": 2, "b": 4, "left out": 1}
    rows = [
        {"tokens": place, "loss": place / size, "who": who, "seed": 0, "size": size}
        for who, size in sizes.items()
        for place in PLACES
    ]
    told = [kind("who:N", scale=alt.Scale(domain=[*sizes])) for kind in (alt.Color, alt.Shape)]
    lines = alt.Chart(alt.InlineData(values=rows)).mark_line().encode(alt.X("tokens:Q"), alt.Y("loss:Q"), *told)
    value, of = alt.X("loss:Q", title="at it"), alt.Y("who:N", sort=["b", "a", "left out"])
    chart = with_slider(lines.properties(width=200, height=100), rows, "tokens", value, of, "tokens", "datum.size > 1")
    spec = styled(chart).to_dict()
    (slider,) = [one for one in spec["params"] if "bind" in one]
    assert slider["bind"] == {"input": "range", "min": 0, "max": len(PLACES) - 1, "step": 1, "name": "tokens: "}
    slider["value"] = at
    svg = drawn(spec)
    assert f">tokens: {PLACES[at]:,}</text>" in svg
    below = {name: mark for name, mark in marks(svg).items() if name.startswith("at it")}
    assert [name.partition("; seed")[0] for name in below] == [
        f"at it: {PLACES[at] // sizes[who]}; who: {who}" for who in "ab"
    ]
    above = [marks(svg)[f"tokens: {PLACES[at]}; loss: {PLACES[at] // sizes[who]}; who: {who}"] for who in "ab"]
    assert [*map(colour, below.values())] == [*map(colour, above)] and colour(above[0]) != colour(above[1])


def test_axes_write_powers_of_ten_and_leave_words_alone() -> None:
    errors = [1e-15, 1.0, 1e3]
    rows = [{"error": error, "who": f"{error:.0e}"} for error in errors]
    powers = alt.Axis(format="~e", values=errors)
    base = alt.Chart(alt.InlineData(values=rows)).mark_point()
    chart = base.encode(alt.X("error:Q", scale=alt.Scale(type="log"), axis=powers), alt.Y("who:N"))
    said = re.findall(r">([^<]+)</text>", drawn(styled(chart + edge("x", 1e-12, "rounding")).to_dict()))
    assert {"10⁻¹⁵", "1", "10³", "1e-15", "1e+00", "1e+03", "rounding"} <= {*said}


@pytest.mark.slow
@pytest.mark.parametrize("file", STORED, ids=lambda file: file.stem)
def test_what_a_study_has_stored_can_be_seen(file: Path) -> None:
    stored = json.loads(file.read_text(encoding="utf-8"))
    study = find_study(stored["study"])
    for of_scale in stored["scales"].values():
        for claim in study.claims:
            if of_scale["verdicts"][claim.key][0] != Verdict.NOT_TESTABLE:
                shown = marks(drawn(study.figure(claim, of_scale["points"]).to_dict()))
                assert shown and all(map(colour, shown.values())), claim.key
