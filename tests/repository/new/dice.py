"""The mean of a die's faces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

HIGH = Rule("mean of the faces", low=3)
FACES = {"six faces": (1, 6), "ten faces": (1, 10), "two faces": (1, 2)}


class Dice(Study):
    name = "dice"
    question = "Is the mean of a die above 3?"
    matched = "Each face counts once."
    why = "The mean lies midway between the least face and the greatest."
    change = "A loaded die."
    claims = (
        Claim(
            "mean",
            "The mean of a die is above 3.",
            "arithmetic",
            ("six faces",),
            HIGH,
            (
                Control("ten faces", HIGH, True, "It is 5.5."),
                Control("two faces", HIGH, False, "It is 1.5."),
            ),
            exact=True,
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        values = {case: (least + greatest) / 2 for case, (least, greatest) in FACES.items()}
        return Measured(values, [{"case": case, "value": value} for case, value in values.items()])

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        chart: TopLevelMixin = alt.Chart(alt.InlineData(values=points)).mark_bar().encode(x="value:Q", y="case:N")
        return chart
