"""Style of the studies' figures, for pages of any width, in colour and in greyscale."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from altair import TopLevelMixin

COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"),
    *("#000000", "#999999", "#882255", "#117733"),
)
"""Colour-blind-safe colours; the first seven are from Okabe and Ito 2008."""
RAISED = reduce(
    lambda text, pair: f"replace({text}, /{pair[0]}/g, '{pair[1]}')",
    zip("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", strict=True),
    "replace(split(datum.label, 'e')[1], '+', '')",
)
POWERS = (
    "!isNumber(datum.value) || indexof(datum.label, 'e') < 0 ? datum.label : datum.value == 1 ? '1' : "
    f"(split(datum.label, 'e')[0] == '1' ? '' : split(datum.label, 'e')[0] + '·') + '10' + {RAISED}"
)
"""Vega expression that formats numbers such as 1e-15 as powers of ten."""


def styled(chart: Any) -> TopLevelMixin:
    """Configures an Altair chart with text legible on a phone and the legend at the bottom."""
    drawn: TopLevelMixin = (
        chart.configure(font="sans-serif")
        .configure_axis(labelFontSize=12, titleFontSize=12, labelLimit=220, labelExpr=POWERS)
        .configure_header(labelFontSize=13, titleFontSize=13)
        .configure_legend(labelFontSize=12, titleFontSize=12, orient="bottom", columns=1, labelLimit=300)
        .configure_range(category=[*COLOURS])
    )
    return drawn


def edge(axis: Literal["x", "y"], at: float, says: str) -> Any:
    """A dashed line across a chart at value `at` of an axis, labelled to its left or above it."""
    import altair as alt

    base = alt.Chart(alt.InlineData(values=[{"edge": at, "says": says}])).encode(**{axis: "edge:Q"})
    left = {"align": "right", "dx": -5, "y": "height", "dy": -22}
    beside: dict[str, Any] = left if axis == "x" else {"align": "left", "x": 4, "dy": -7}
    return base.mark_rule(strokeDash=[4, 3]) + base.mark_text(fontSize=11, **beside).encode(text="says:N")


def with_slider(
    lines: Any, rows: list[dict[str, Any]], along: str, value: Any, of: Any, unit: str, only: str = "true"
) -> Any:
    """A line chart, and below it the value of each line at a position chosen by a slider.

    Args:
        lines: chart of the rows over the column `along`; its colours, shapes and scale are also used below.
        along: column of the positions in `rows`.
        value: plotted quantity, as an Altair x encoding.
        of: column that identifies the lines, as an Altair y encoding.
        unit: unit of the positions, which need not be equally spaced.
        only: filter of the rows, as a Vega expression.
    """
    import altair as alt

    places = sorted({row[along] for row in rows}) or [0]
    slider = alt.binding_range(min=0, max=len(places) - 1, step=1, name=f"{unit}: ")
    at = alt.param(name="at", value=len(places) // 2, bind=slider)
    place = alt.param(name="place", expr=f"{places}[at]")
    lines = lines.copy(deep=False)
    lines.config = alt.Undefined  # if the lines were already styled
    first = lines.layer[0] if isinstance(lines, alt.LayerChart) else lines
    drawn = {
        name: kind.legend(None) if hasattr(kind, "legend") else kind
        for name in ("color", "shape")
        if (kind := first.encoding[name]) is not alt.Undefined
    }
    chosen = alt.Chart(alt.InlineData(values=rows)).transform_filter(f"datum.{along} == place && ({only})")
    here = chosen.mark_rule(color="#999").encode(x=f"{along}:Q")
    marks = chosen.mark_point(filled=True, size=70).encode(
        value.scale(**_scale(first.encoding["y"], rows, value)),
        of.scale(domain=_names(of, rows)),
        tooltip=[of.shorthand, "seed:O", value.shorthand],
        **drawn,
    )
    title = alt.TitleParams(text=alt.expr(f"'{unit}: ' + format(place, ',')"), anchor="start", fontSize=12)
    below = marks.properties(width=lines.width, height=alt.Step(20), title=title)
    both = alt.vconcat(lines + here, below).add_params(at, place)
    return both.resolve_legend(color="independent", shape="independent", strokeDash="independent")


def _scale(y: Any, rows: list[dict[str, Any]], value: Any) -> dict[str, Any]:
    """Scale of the lines over all rows, so that the axis stays fixed when the slider moves."""
    import altair as alt

    found = [row[_column(value)] for row in rows] or [0]
    given = {} if y["scale"] is alt.Undefined else y["scale"].to_dict()
    return {"domain": [min(found), max(found)], "nice": True} | given


def _names(of: Any, rows: list[dict[str, Any]]) -> list[str]:
    """Names of all lines in the requested order, including lines without a mark."""
    found = dict.fromkeys(row[_column(of)] for row in rows)
    return [name for name in of["sort"] if name in found] if isinstance(of["sort"], list) else sorted(found)


def _column(of: Any) -> str:
    return str(of.shorthand).partition(":")[0]
