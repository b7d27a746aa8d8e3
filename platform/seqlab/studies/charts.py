"""How the figures of studies look, on pages of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altair import TopLevelMixin


def styled(chart: Any) -> TopLevelMixin:
    """A chart of Altair with texts that can be read on a telephone, its legend below."""
    drawn: TopLevelMixin = (
        chart.configure(font="sans-serif")
        .configure_axis(labelFontSize=12, titleFontSize=12, labelLimit=220)
        .configure_header(labelFontSize=13, titleFontSize=13)
        .configure_legend(labelFontSize=12, titleFontSize=12, orient="bottom", columns=1, labelLimit=300)
    )
    return drawn


def with_slider(lines: Any, rows: list[dict[str, Any]], along: str, value: Any, of: Any, unit: str) -> Any:
    """Lines, and below them what each has at one place of them, which a slider moves.

    Args:
        lines: a chart of rows over the column `along`, whose places are equally far apart.
        value: the quantity, as an x of Altair.
        of: what tells the lines apart, as a y of Altair.
        unit: of the places.
    """
    import altair as alt

    places = sorted({row[along] for row in rows}) or [0]
    step = places[1] - places[0] if len(places) > 1 else 1
    slider = alt.binding_range(min=places[0], max=places[-1], step=step, name=f"{unit}: ")
    at = alt.param(name="at", value=places[len(places) // 2], bind=slider)
    chosen = alt.Chart(alt.InlineData(values=rows)).transform_filter(f"datum.{along} == at")
    here = chosen.mark_rule(color="#999").encode(x=f"{along}:Q")
    marks = chosen.mark_point(filled=True, size=70).encode(value, of, tooltip=[of.shorthand, "seed:O", value.shorthand])
    return alt.vconcat(lines + here, marks.properties(width=lines.width, height=alt.Step(20))).add_params(at)
