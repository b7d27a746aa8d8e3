"""The lectures' sums of time, money and size, redone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seqlab.budgets import training_flops
from seqlab.budgets.devices import DEVICES
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.sizes import preset, size_of

if TYPE_CHECKING:
    from altair import TopLevelMixin

DAY, YEAR = 86400.0, 365.25 * 86400
FITS = Rule("how far what is printed is from what it should be, in percent", high=5, beyond=5)
"""5% is the most that rounding to two digits changes."""


class Price(Study):
    name = "price"
    question = "Do the lectures' sums of time, money and size hold?"
    matched = (
        "Arithmetic. Models are those that seqlab fits, built without memory from presets/, at the vocabularies of "
        "their papers; the FLOPs of training are those of seqlab estimate. GPT-3 reads 300 billion tokens. The "
        "Transformers take 100,000 and 300,000 steps of 25,000 tokens of each language, as in their paper, on one "
        "A100 of 312 TFLOP/s, or read the words that an RNN reads in 90 days at 800 a second; on more devices they "
        "would take less time still. One case, a day for what an RNN reads in 90, was added after the first numbers. "
        "The money, $500 for each of the table's days, is a quotient of the table's own numbers and is not judged. "
        "Days times the share of the device that is used are compared instead, with the base Transformer's day at 90%."
    )
    why = (
        "Sizes and years follow from the formulae. Beside the base Transformer's day, the RNN's days are as much "
        "work, and those of attention 2.5 times as much. The days of Transformers are those of eight P100 in the "
        "paper, rounded: beside an A100's speed and 90% of it they are too many. Other numbers are two for one thing: "
        "5,120 cores are a V100's, 312 TFLOP/s an A100's of 6,912, and the recurrent models have two BLEUs each."
    )
    change = "The lecture's own recipe: how many words, on which devices and how many of them. The table does not say."
    claims = (
        Claim(
            "sums",
            "An RNN at 800 words a second reads 100 billion in 3.9 years, GPT-3 takes 355 years on one GPU; BERT-Base "
            "has 110M parameters, GPT-2 1.5B, GPT-3 175B, the Transformers 65M and 213M; 33.2 BLEU is 79% above 18.5.",
            "L0 and L3, claims 1, 4, 6 and 10",
            (
                *("years of an RNN", "years of GPT-3 at 28 TFLOP/s"),
                *("BERT-Base", "GPT-2", "GPT-3", "Transformer base", "Transformer big", "79% more BLEU"),
            ),
            FITS,
            (
                Control("GPT-2 small", FITS, True, "124,439,808, as OpenAI's weights have."),
                Control("Transformer base, not tied", FITS, False, "Three tables of 37,000 words in place of one."),
            ),
            exact=True,
        ),
        Claim(
            "table",
            "An RNN takes 90 days, with attention 45; the base Transformer 1 day at 90% of a GPU, the big one 3.5 days "
            "at 92%; an RNN uses 49 of 5,120 cores, 0.96%: 3 of 312 TFLOP/s.",
            "L0, claims 2 and 4",
            (
                *("work of an RNN's 90 days at 0.96%", "work of 45 days at 5% with attention"),
                *("work of big's 3.5 days at 92%", "0.96% of 5,120 cores", "0.96% of 312 TFLOP/s"),
                *("cores where 312 TFLOP/s are", "BLEU of the RNN", "BLEU with attention"),
                *("base: 1 day of an A100 at 90%", "base: 1 day for what an RNN reads in 90"),
                "big: 3.5 days of an A100 at 92%",
            ),
            FITS,
            (
                Control("base: 12 hours of 8 P100", FITS, True, "3.3e18 FLOPs at 9.5 TFLOP/s, as its paper says."),
                Control("big: 3.5 days of 1 P100", FITS, False, "It was 8 of them: 2.3e19 FLOPs."),
            ),
            exact=True,
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        found = printed_and_ours()
        values = {case: 100 * abs(printed / ours - 1) for case, (printed, ours) in found.items()}
        rows = [
            {"case": case, "printed": printed, "ours": ours, "times": printed / ours}
            for case, (printed, ours) in found.items()
        ]
        return Measured(values, rows)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        kinds = {
            **dict.fromkeys(claim.cases, "case"),
            **{control.case: "control" for control in claim.controls},
        }
        shown = [row | {"is": kinds[row["case"]]} for row in points if row["case"] in kinds]
        base = alt.Chart(alt.InlineData(values=shown)).encode(
            alt.X(
                "times:Q",
                title="printed / what it should be",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(format="~g", values=[0.1, 1, 10, 100]),
            ),
            alt.Y("case:N", title=None, sort=list(kinds)),
            alt.Shape("is:N", title=None),
            alt.Color("is:N", title=None),
            tooltip=["case:N", "printed:Q", "ours:Q", "times:Q"],
        )
        one = alt.Chart(alt.InlineData(values=[{"times": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="times:Q")
        return styled((one + base.mark_point(filled=True, size=70)).properties(width=130, height=alt.Step(20)))


def printed_and_ours() -> dict[str, tuple[float, float]]:
    """The lecture's number and what it should be, by case."""
    small, xl, gpt3 = preset("gpt2", seq_len=1024), preset("gpt2-xl", seq_len=1024), preset("gpt3")
    bert = preset("bert-base", 30_522, seq_len=512)
    base, big = (preset(f"transformer-{size}", 37_000) for size in ("base", "big"))
    untied = preset("transformer-base", 37_000, tie_embeddings="none")
    a100, p100 = DEVICES["A100"].half, 9.5e12
    a_token = [training_flops(model, 32) / a100 / DAY for model in (base, big)]  # days
    return {
        "years of an RNN": (3.9, 100e9 / 800 / YEAR),
        "years of GPT-3 at 28 TFLOP/s": (355, training_flops(gpt3, 2048) * 300e9 / 28e12 / YEAR),
        "BERT-Base": (110e6, size_of(bert)),
        "GPT-2": (1.5e9, size_of(xl)),
        "GPT-3": (175e9, size_of(gpt3)),
        "Transformer base": (65e6, size_of(base)),
        "Transformer big": (213e6, size_of(big)),
        "79% more BLEU": (79, 100 * (33.2 / 18.5 - 1)),
        "GPT-2 small": (124_439_808, size_of(small)),
        "Transformer base, not tied": (65e6, size_of(untied)),
        "work of an RNN's 90 days at 0.96%": (90 * 0.96, 1 * 90),
        "work of 45 days at 5% with attention": (45 * 5, 1 * 90),
        "work of big's 3.5 days at 92%": (3.5 * 92, 1 * 90 * a_token[1] * 300e3 / (a_token[0] * 100e3)),
        "0.96% of 5,120 cores": (0.96, 100 * 49 / 5120),
        "0.96% of 312 TFLOP/s": (0.96, 100 * 3e12 / a100),
        "cores where 312 TFLOP/s are": (5120, 6912),
        "BLEU of the RNN": (24.5, 28.5),
        "BLEU with attention": (28.4, 33.2),
        "base: 1 day of an A100 at 90%": (1, a_token[0] * 100e3 * 50e3 / 0.90),
        "base: 1 day for what an RNN reads in 90": (1, a_token[0] * 2 * 800 * 90 * DAY / 0.90),
        "big: 3.5 days of an A100 at 92%": (3.5, a_token[1] * 300e3 * 50e3 / 0.92),
        "base: 12 hours of 8 P100": (3.3e18, 8 * p100 * DAY / 2),
        "big: 3.5 days of 1 P100": (2.3e19, p100 * DAY * 3.5),
    }
