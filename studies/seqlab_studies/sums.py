"""Adding numbers that are longer than any in training, with every encoding and by recurrences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seqlab.study.arms import Arm
from seqlab.study.charts import COLOURS, edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.lengths import EXAMPLES, of_all, reach

if TYPE_CHECKING:
    from altair import TopLevelMixin

TRAINED, LONGEST, WIDTH = 2, 6, 64
EMBEDDED, ROTARY = ("Integer", "Binary", "Sinusoidal", "Learned", "Randomized"), ("RoPE", "XPos")
SCORES = ("ALiBi", "T5Bias", "Shaw", "CoPE")
ENCODINGS, RECURRENCES = (*EMBEDDED, *ROTARY, *SCORES), ("RNN", "GRU", "LSTM")
DRAWN_FROM = 64
"""Positions that Randomized draws from."""
KNOWN = 0.99
"""Smallest share of right sums at each trained length. A model below it has not learned to add, and its seed is not
judged."""
FAR = Rule(
    f"the longest numbers that are added right at least every second time, over {TRAINED} digits,", low=2.0, beyond=0.5
)
ANY, OF_ANOTHER, ORACLE = "Learned", "Learned, of other numbers", "the sum"
LEARNT = Rule(
    f"the least share of sums of one length, up to {TRAINED} digits, that is right",
    low=KNOWN,
    beyond=0.4,
    possible=(0, 1),
)
CONTROLS = (
    Control(ORACLE, FAR, True, "It is the answer, at any length."),
    Control(OF_ANOTHER, FAR, False, "It cannot know that answer."),
    Control(f"{ANY} learnt", LEARNT, True, "It has learned the task, or nothing is shown."),
    Control(f"{OF_ANOTHER} learnt", LEARNT, False, "It cannot know that answer."),
)


class Sums(Study):
    name = "sums"
    question = "Can a model add numbers that are longer than any it was trained on?"
    matched = (
        f"Sums of two numbers of 1 to {TRAINED} digits, all written from the lowest digit on, as in Lee et al. 2023; "
        f"two layers of {WIDTH} channels, 96,000 sums at cpu scale, two learning rates each; {EXAMPLES} sums of "
        f"every length to {LONGEST} are tested, given the answer so far. A model of which not {100 * KNOWN:g}% of the "
        "sums of each trained length are right has not learned to add, and its seed has no number. Randomized draws "
        f"sines from {DRAWN_FROM} places. Pilots of one seed chose length, base and steps: attention had not learned "
        "numbers of 3 digits with each encoding after 128,000 sums, nor of 6 in base 2. Recurrences that take minutes "
        "a fit on a CPU, such as Mamba, are left out."
    )
    why = (
        "Whoever has learned to add ends where training did, and at once, whatever tells it positions. There are "
        "10,000 sums of two numbers of two digits, and training has each of them about 5 times: a table of sums is "
        "enough, and a table has no row for a third digit. That digits are added one by one, with a carry, is not "
        "what the answers asked for. With sines, integers, binary digits, drawn places and ALiBi no seed learned to "
        "add in so few steps, nor with the RNN."
    )
    change = "Training with positions drawn from a longer range, digits told by their place, or far longer training."
    published = (
        "Kazemnejad et al. 2023 train decoders of 107M parameters on sums of up to 8 digits. Of longer ones, to 16, "
        "8% come out right with ALiBi, 6 to 8% with T5's biases, 7 to 11% without positions, and under 1% with sines "
        "and rotary positions. Ours have a thousandth of the parameters."
    )
    claims = (
        Claim(
            "any-length",
            "With positions the length of the text does not matter, in addition either.",
            "L0, L1 and L3, claims 15 and 16",
            ENCODINGS,
            FAR,
            CONTROLS,
        ),
        Claim(
            "recurrence",
            "A recurrence, which has no positions, adds numbers of any length.",
            "L2 and L4, claim 15",
            RECURRENCES,
            FAR,
            CONTROLS,
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 1500 if scale == "cpu" else 20_000
        fit = (
            *("--config=synthetic/recall", "--data.task=Addition", "--data.task.lowest_first=true"),
            *(f"--data.train_lengths=[1,{TRAINED}]", f"--data.test_lengths=[{TRAINED},{LONGEST}]"),
            *("--data.batch_size=64", f"--data.num_train={64 * steps}", "--data.num_eval=512"),
            *(f"--model.model.d_model={WIDTH}", f"--trainer.val_check_interval={steps // 2}"),
        )
        attention, positions = (*fit, "--model.model.mixer=Attention"), "--model.model.positions"
        drawn = {"Randomized": (f"{positions}.max_position={DRAWN_FROM}",)}
        return (
            *(Arm(name, (*attention, f"{positions}={name}", *drawn.get(name, ())), (1e-3, 3e-3)) for name in ENCODINGS),
            *(Arm(name, (*fit, f"--model.model.mixer={name}"), (3e-3, 1e-2)) for name in RECURRENCES),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            return Measured({}, [], dict.fromkeys((claim.key for claim in self.claims), "no model is trained at smoke"))
        shares, points = of_all(runs, seed, LONGEST, ANY, OF_ANOTHER, ORACLE)
        return Measured(compared(shares), points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        named = list(ENCODINGS) if claim.key == "any-length" else [*RECURRENCES, ANY]
        rows = [row for row in points if row["model"] in named]
        picked = alt.param(name="picked", value=named[0], bind=alt.binding_select(options=named, name="shown: "))
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="digits", axis=alt.Axis(tickMinStep=1)),
            alt.Y("mean(whole):Q", title="share added right", scale=alt.Scale(domain=[0, 1])),
            alt.Detail("model:N"),
            tooltip=["model:N", "length:Q", "mean(whole):Q"],
        )
        one = base.transform_filter("datum.model == picked")
        lines = base.mark_line(color="#bbb", strokeWidth=1) + one.mark_line(color=COLOURS[0])
        lines += one.mark_point(color=COLOURS[0], filled=True, size=45).add_params(picked)
        lines += edge("x", TRAINED, "longest in training")
        value, of = alt.X("whole:Q", title="share added right"), alt.Y("model:N", title=None, sort=named)
        return styled(with_slider(lines.properties(width=220, height=220), rows, "length", value, of, "digits"))


def compared(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Values of the cases, from the shares by length; NaN for a model that has not learned to add."""
    least = {name: min(share[:TRAINED]) for name, share in shares.items()}
    values = {f"{name} learnt": share for name, share in least.items()}
    judged = {name: share for name, share in shares.items() if least[name] >= KNOWN or name == OF_ANOTHER}
    return values | {name: reach(judged[name], TRAINED) if name in judged else math.nan for name in shares}
