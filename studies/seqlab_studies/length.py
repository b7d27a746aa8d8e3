"""Strings that are longer than any that a model was trained on, one length after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab import positions
from seqlab.study.arms import Arm
from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.lengths import COPIED, EXAMPLES, LONGEST, OF_ANOTHER, ORACLE, TRAINED, of_all, reach

if TYPE_CHECKING:
    from altair import TopLevelMixin

SYMBOLS = 8
WIDTH, PLACES = 64, 1024
ENCODINGS = ("NoPositions", "Sinusoidal", "Learned", "RoPE")
FAR = Rule(f"the longest string that is copied whole at least every second time, over {TRAINED},", low=2.0, beyond=0.5)
COLLAPSES = Rule(
    f"the share of strings of {TRAINED} symbols, the longest in training, that is copied whole,",
    high=0.5,
    beyond=0.4,
    possible=(0, 1),
)
DISTANCE = Rule(
    "log10 of the deviation of the inner product of positions at one distance, over that of all,", high=-6, beyond=3
)
APART = Rule("log10 of the least distance of two positions, over the mean one,", low=-2, beyond=0.5)
DRAWN, TURNED, PAIR = "vectors drawn at random", "one pair of channels a radian a place", "one fast pair"


class Length(Study):
    name = "length"
    question = "What becomes of a model when the text is longer than any it was trained on?"
    matched = (
        f"Copying strings of 1 to {TRAINED} out of {SYMBOLS} symbols, two layers of {WIDTH} channels, 76,800 strings "
        f"at cpu scale, two learning rates each; {EXAMPLES} strings of every single length to {LONGEST} are "
        "tested, given the answer so far. All have the same parameters but for Learned's table; the GRU has none to "
        f"tell positions by. The encodings themselves: {PLACES} positions of {WIDTH} channels, in float64."
    )
    why = (
        "A place that was never seen is a vector that was never seen: rows of a table that were not trained, or angles "
        "in a combination that did not occur. That an encoding has a value at any length does not say that a model "
        "knows what to do with it. Without positions a causal stack can count what it has read, and learns that "
        "slowly."
    )
    change = "Training with positions drawn from a longer range, another task, or far longer training."
    published = (
        "Kazemnejad et al. 2023 train decoders of 107M parameters to copy up to 20 tokens. Of texts of 24 nearly all "
        "come out whole with ALiBi, T5's biases and without positions, none with rotary or absolute ones, which end "
        "at 21; of texts of 40 it is 0.96 without positions and 0.21 with T5's biases. Ours are a thousandth as "
        "large, see 76,800 strings of up to six symbols, and end as soon."
    )
    claims = (
        Claim(
            "collapses",
            "Without positions quality collapses with length.",
            "L0, claim 15",
            ("NoPositions at the longest",),
            COLLAPSES,
            (
                Control(f"{OF_ANOTHER} at the longest", COLLAPSES, True, "It cannot know that string."),
                Control(f"{COPIED} at the longest", COLLAPSES, False, "It has learned the task, or nothing is shown."),
            ),
        ),
        Claim(
            "any-length",
            "With positions the length of the text does not matter; sines work at any length.",
            "L0, L1 and L3, claims 15 and 16",
            ("Sinusoidal", "Learned", "RoPE", "GRU"),
            FAR,
            (
                Control(ORACLE, FAR, True, "It is the answer, at any length."),
                Control(OF_ANOTHER, FAR, False, "It cannot know that string."),
            ),
        ),
        Claim(
            "distance",
            "Sines keep relative distances: two places as far apart are as alike.",
            "L1 and L3, claim 16",
            ("Sinusoidal, distances",),
            DISTANCE,
            (
                Control(TURNED, DISTANCE, True, "The angle between two places is their distance."),
                Control(DRAWN, DISTANCE, False, "They know nothing of distances."),
            ),
        ),
        Claim(
            "unique",
            "Sines are unique: no two places have the same.",
            "L1 and L3, claim 16",
            ("Sinusoidal, apart", "Binary, apart"),
            APART,
            (
                Control(f"{DRAWN}, apart", APART, True, "In so many channels none are alike."),
                Control(f"{PAIR}, apart", APART, False, "It comes round again after 710 places, all but."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 1200 if scale == "cpu" else 10_000
        fit = (
            *("--config=synthetic/recall", "--data.task=Copy", f"--data.task.num_symbols={SYMBOLS}"),
            *(f"--data.train_lengths=[1,{TRAINED}]", f"--data.test_lengths=[{TRAINED},{LONGEST}]"),
            *("--data.batch_size=64", f"--data.num_train={64 * steps}", "--data.num_eval=512"),
            *(f"--model.model.d_model={WIDTH}", f"--trainer.val_check_interval={steps // 3}"),
        )
        mixer = "--model.model.mixer="
        return (
            *(
                Arm(name, (*fit, f"{mixer}Attention", f"--model.model.positions={name}"), (1e-3, 3e-3))
                for name in ENCODINGS
            ),
            Arm("GRU", (*fit, f"{mixer}GRU"), (3e-3, 1e-2)),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        draw = torch.Generator().manual_seed(seed)
        tables = {
            "Sinusoidal": table(positions.Sinusoidal(WIDTH, PLACES)),
            "Binary": table(positions.Binary(WIDTH, PLACES)),
        }
        tables[DRAWN] = torch.randn(PLACES, WIDTH, generator=draw, dtype=torch.float64)
        at = torch.arange(PLACES, dtype=torch.float64)
        tables[TURNED] = torch.stack((at.sin(), at.cos()), 1)
        tables[PAIR] = tables[TURNED]
        values = {"Sinusoidal, distances": distances(tables["Sinusoidal"])}
        values |= {name: distances(tables[name]) for name in (TURNED, DRAWN)}
        values |= {f"{name}, apart": apart(tables[name]) for name in ("Sinusoidal", "Binary", DRAWN, PAIR)}
        points: Points = [
            {"encoding": name, "place": place, "alike": float(tables[name][100] @ tables[name][place] / norm)}
            for name in ("Sinusoidal", DRAWN)
            for norm in [float(tables[name][100].square().sum())]
            for place in range(0, 201, 2)
        ]
        if not runs:
            missing = "no model is trained at smoke scale"
            return Measured(values, points, dict.fromkeys(("collapses", "any-length"), missing))
        shares, rows = of_all(runs, seed, LONGEST, COPIED, OF_ANOTHER, ORACLE)
        values |= {name: reach(share, TRAINED) for name, share in shares.items()}
        values |= {f"{name} at the longest": share[TRAINED - 1] for name, share in shares.items()}
        points += [row for row in rows if row["model"] != ORACLE]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        if claim.key in ("distance", "unique"):
            base = alt.Chart(alt.InlineData(values=[row for row in points if "encoding" in row])).encode(
                alt.X("place:Q", title="place"),
                alt.Y("mean(alike):Q", title="inner product with place 100, its own = 1"),
                alt.Color("encoding:N", title=None),
                alt.StrokeDash("encoding:N", title=None),
            )
            return styled(base.mark_line().properties(width=220, height=180))
        scale = alt.Scale(domain=[*ENCODINGS, "GRU", OF_ANOTHER])
        rows = [row for row in points if "model" in row]
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="symbols", axis=alt.Axis(tickMinStep=1)),
            alt.Y("mean(whole):Q", title="share copied whole", scale=alt.Scale(domain=[0, 1])),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            tooltip=["model:N", "length:Q", "mean(whole):Q"],
        )
        last = edge("x", TRAINED, "longest in training")
        lines = (base.mark_line() + base.mark_point(filled=True, size=45) + last).properties(width=220, height=220)
        value, of = alt.X("whole:Q", title="share copied whole"), alt.Y("model:N", title=None, sort=scale.domain)
        return styled(with_slider(lines, rows, "length", value, of, "symbols"))


def table(encoding: Any) -> Tensor:
    """(PLACES, W)."""
    found: Tensor = encoding.encode(torch.arange(PLACES).unsqueeze(0), torch.float64)[0]
    return found.double()


def distances(vectors: Tensor) -> float:
    """Dependence of two places' inner product on more than their distance, as log10."""
    products = vectors @ vectors.T
    within = [products.diagonal(back).std(correction=0) for back in range(1, PLACES // 2)]
    return math.log10(max(float(torch.stack(within).mean() / products.std()), 1e-20))


def apart(vectors: Tensor) -> float:
    """Smallest distance between vectors (P, W) over the mean one, as log10."""
    found = torch.pdist(vectors)
    return math.log10(max(float(found.min() / found.mean()), 1e-20))
