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
