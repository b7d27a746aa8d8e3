"""The sums that the lectures work by hand, redone by our blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.models import BagOfWords
from seqlab.positions import Sinusoidal
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

RIGHT = Rule("the largest difference between printed and computed, in units of the last printed digit", high=0.5)
CAT_SAT = torch.tensor([[0.1, 0.4], [0.6, 0.2], [0.3, 0.65]], dtype=torch.float64)
"""(T, D): the, cat, sat."""
SENTENCES = ("yes , we have no bananas", "say yes for bananas", "no bananas , we say")
COUNTS = {
    ",": (1, 0, 1),
    "bananas": (1, 1, 1),
    "for": (0, 1, 0),
    "have": (1, 0, 0),
    "no": (1, 0, 1),
    "say": (0, 1, 1),
    "we": (1, 0, 1),
    "yes": (1, 1, 0),
}


class Sum(NamedTuple):
    """
    Attributes:
        names: of the numbers.
        printed: what the lecture has.
        ours: what a block gives.
        digit: the last printed digit's unit.
    """

    names: tuple[str, ...]
    printed: tuple[float, ...]
    ours: Tensor
    digit: float


class WorkedNumbers(Study):
    name = "worked-numbers"
    question = "Do the sums that lectures work by hand come out of the blocks that are trained?"
    matched = "In float64, by the blocks that `fit` trains, their projections set to the identity."
    why = (
        "The worked sums are right to their last digit, but where a lecture slips: a sign that is dropped, a scale "
        "that is forgotten. The blocks compute what the formulae say."
    )
    change = "A lecture that divides the scores by the square root of the width: its weights would be 30, 36 and 34%."
    claims = (
        Claim(
            "attention",
            "For the query cat, the scores of (the, cat, sat) are .14, .40, .31 and their weights 29, 37, 34%.",
            "L0, claim 12",
            ("scores", "weights"),
            RIGHT,
            (
                Control("weights of equal keys", RIGHT, True, "Three equal keys have a third of the weight each."),
                Control(
                    "weights of scaled scores", RIGHT, False, "Divided by sqrt(2) these scores give other weights."
                ),
            ),
            exact=True,
        ),
        Claim(
            "words",
            "Three sentences as counts of their words: yes , we have no bananas; say yes for bananas; no bananas , we "
            "say.",
            "L2, claim 13",
            ("counts",),
            RIGHT,
            (
                Control("counts of shuffled words", RIGHT, True, "A bag of words has no order."),
                Control("counts of other sentences", RIGHT, False, "Sentences in another order are other columns."),
            ),
            exact=True,
        ),
        Claim(
            "positions",
            "Sines tell positions 1, 2, 3 as (.84, .54), (.91, -.42), (.14, -.99); added, (.3, .2, .5, .1) and (.1, 0, "
            "0, .05) are (.4, .2, .5, .15).",
            "L0 and L3, claim 16",
            ("sines", "added"),
            RIGHT,
            (
                Control("position 0", RIGHT, True, "It is (0, 1) in each pair of channels."),
                Control("sines without their sign", RIGHT, False, "L3 drops the sign at position 2: a slip."),
            ),
            exact=True,
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        values, points = {}, []
        for case, some in sums():
            printed = torch.tensor(some.printed, dtype=torch.float64)
            ours = some.ours.double().flatten()
            values[case] = float((ours - printed).abs().max() / some.digit)
            rows = zip(some.names, printed.tolist(), ours.tolist(), strict=True)
            points += [{"sum": case, "number": name, "printed": told, "ours": found} for name, told, found in rows]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        wrong = [control.case for control in claim.controls if not control.holds]
        told = {case: case for case in claim.cases} | {
            case: f"{case}: a control, where they must differ" for case in wrong
        }
        shown = [row | {"sum": told[row["sum"]]} for row in points if row["sum"] in told]
        both = [row | {"by": by, "value": row[by]} for row in shown for by in ("printed", "ours")]
        return styled(
            alt.Chart(alt.InlineData(values=both))
            .mark_point(size=90, strokeWidth=2)
            .encode(
                x=alt.X("value:Q", title=None),
                y=alt.Y("number:N", title=None, sort=None),
                shape=alt.Shape("by:N", title=None, scale=alt.Scale(range=["circle", "cross"])),
                color=alt.Color("by:N", title=None),
                facet=alt.Facet("sum:N", title=None, sort=None, columns=1, header=alt.Header(labelAnchor="start")),
                tooltip=["sum:N", "number:N", "printed:Q", "ours:Q"],
            )
            .properties(width=220, height=alt.Step(16))
            .resolve_scale(y="independent", x="independent")
        )


def sums() -> Iterator[tuple[str, Sum]]:
    words = ("the", "cat", "sat")
    scores = CAT_SAT @ CAT_SAT[1]
    yield "scores", Sum(words, (0.14, 0.40, 0.31), scores, 0.01)
    yield "weights", Sum(words, (0.29, 0.37, 0.34), weights(CAT_SAT, scale=1.0)[1], 0.01)
    yield "weights of equal keys", Sum(words, (0.33,) * 3, weights(CAT_SAT[[0, 0, 0]], scale=1.0)[1], 0.01)
    yield "weights of scaled scores", Sum(words, (0.29, 0.37, 0.34), weights(CAT_SAT, scale=None)[1], 0.01)

    names = tuple(f"{word} {column}" for word in COUNTS for column in (1, 2, 3))
    printed = tuple(float(count) for counts in COUNTS.values() for count in counts)
    shuffled = [" ".join(reversed(sentence.split())) for sentence in SENTENCES]
    for case, sentences in {
        "counts": SENTENCES,
        "counts of shuffled words": shuffled,
        "counts of other sentences": SENTENCES[::-1],
    }.items():
        yield case, Sum(names, printed, counts(sentences), 1.0)

    told = sines(torch.arange(4))
    pairs = tuple(f"{function} {position}" for position in (1, 2, 3) for function in ("sin", "cos"))
    yield "sines", Sum(pairs, (0.84, 0.54, 0.91, -0.42, 0.14, -0.99), told[1:], 0.01)
    yield "sines without their sign", Sum(pairs[2:4], (0.91, 0.42), told[2], 0.01)
    yield "position 0", Sum(("sin 0", "cos 0"), (0.0, 1.0), told[0], 0.01)
    embedded = torch.tensor([0.3, 0.2, 0.5, 0.1], dtype=torch.float64)
    added = embedded + torch.tensor([0.1, 0.0, 0.0, 0.05], dtype=torch.float64)
    yield "added", Sum(("1", "2", "3", "4"), (0.4, 0.2, 0.5, 0.15), added, 0.01)


def weights(vectors: Tensor, scale: float | None) -> Tensor:
    """(T, T): how much each of T vectors (T, D) attends to each."""
    attention = Attention(vectors.shape[1], num_heads=1, pattern=Bidirectional, scale=scale, bias=False).double()
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight.copy_(torch.eye(vectors.shape[1]))
        return attention.attention_weights(vectors.unsqueeze(0))[0, 0]


def counts(sentences: Sequence[str]) -> Tensor:
    """(words, sentences): the mean of one-hot embeddings is the share of each word; times the length, its count."""
    from seqlab_data.tokenizers import WordTokenizer

    tokenizer = WordTokenizer("\n".join(SENTENCES))
    bag = BagOfWords(tokenizer.vocab_size, 2, 0, d_model=tokenizer.vocab_size)
    bag.head = torch.nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        bag.embedding.weight.copy_(torch.eye(tokenizer.vocab_size))
        ids = [torch.tensor(tokenizer.encode(sentence)) for sentence in sentences]
        columns = torch.stack([bag.eval()(row.unsqueeze(0))[0] * len(row) for row in ids], dim=1)
    rows = [tokenizer.encode(word)[0] for word in COUNTS]
    return columns[rows]


def sines(positions: Tensor) -> Tensor:
    """(T, 2): the first pair of channels."""
    return Sinusoidal(2, 0).encode(positions.unsqueeze(0), torch.float64)[0]
