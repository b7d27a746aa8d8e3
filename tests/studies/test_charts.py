"""Figures of studies."""

from __future__ import annotations

import altair as alt
import vl_convert

from seqlab.studies.charts import styled, with_slider


def test_a_slider_shows_each_line_at_one_place() -> None:
    rows = [{"at_step": at, "loss": at / 10, "who": who, "seed": 0} for who in ("a", "b") for at in (4, 8, 12)]
    lines = alt.Chart(alt.InlineData(values=rows)).mark_line().encode(x="at_step:Q", y="loss:Q", color="who:N")
    value, who = alt.X("loss:Q"), alt.Y("who:N")
    chart = styled(with_slider(lines.properties(width=200, height=100), rows, "at_step", value, who, "steps")).to_dict()
    (param,) = [one for one in chart["params"] if "bind" in one]
    assert (
        param["bind"] == {"input": "range", "min": 4, "max": 12, "step": 4, "name": "steps: "} and param["value"] == 8
    )
    _, below = chart["vconcat"]
    assert below["transform"] == [{"filter": "datum.at_step == at"}] and below["width"] == 200
    vl_convert.vegalite_to_vega(chart)  # Vega can draw it
