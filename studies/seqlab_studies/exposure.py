"""Teacher forcing: what a decoder loses when it reads its own words, and whether training on them helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.batch import PairBatch
from seqlab.decoding.prefixes import forced_nats, free_nats
from seqlab.study.arms import Arm
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import load_run
from seqlab_studies.lib.copying import HELD_OUT, WORDS, Copying, batch_of, bleu, sentences, slope, write

if TYPE_CHECKING:
    from altair import TopLevelMixin

RNN, TRANSFORMER = "RNN", "Transformer"
OWN, AGAIN = ", own words too", "RNN, fitted again"
PASSES = {RNN: "sequential", TRANSFORMER: "parallel"}
RATES = {RNN: (2e-3, 5e-3), TRANSFORMER: (2.5e-3, 5e-3)}
SIZES: dict[Scale, tuple[dict[str, Copying], int, dict[str, int]]] = {
    "smoke": ({RNN: Copying(4, 5, 200, 4, 200, furthest=5)}, 3, {RNN: 8}),
    "cpu": (
        {
            RNN: Copying(4, 12, 20_000, 500, 832, furthest=12),
            TRANSFORMER: Copying(4, 12, 20_000, 250, 832, furthest=12),
        },
        100,
        {RNN: 64, TRANSFORMER: 32},
    ),
    "gpu": (
        {
            RNN: Copying(4, 32, 200_000, 4_000, 8_192, furthest=32),
            TRANSFORMER: Copying(4, 32, 200_000, 1_000, 8_192, furthest=32),
        },
        400,
        {RNN: 256, TRANSFORMER: 128},
    ),
}
"""The text and the steps of each model, the sentences of each length that are written, and the widths."""
GROWS = Rule("growth of free-running minus forced loss, in nats for each further position,", low=0.01)
WRONG = 4
"""The place whose word is another sentence's, from 1 on."""
HARMS = Rule("nats that each later word of the sentence costs more after one wrong word,", low=0.1, beyond=0.05)
GAINS = Rule("gain in BLEU", low=1.0)
CALMS = Rule(
    "nats that reading its own words costs a word, minus those without this training,", high=-0.05, beyond=0.04
)
LOST, FIRM = "a writer that is lost after its first error", "a writer that does not look back"
FIRM_OVER_LOST = "not looking back over being lost"


class Exposure(Study):
    name = "exposure"
    question = "Does teacher forcing harm a decoder that must read its own words?"
    matched = (
        "Made-up text whose target is its source, so that what is right at a place is known whatever was written "
        "before it. A GRU without attention of 58,000 parameters and a Transformer of 61,000 at cpu scale; the "
        "Transformer has half the steps, for it must still make errors. With and without own words: the same model, "
        "steps, text and grid of two learning rates. The share of own words rises from 0 to a half: the GRU draws "
        "them step by step, the Transformer all at once in one more pass. Loss by position is of the words of the "
        "longest sources; in the first runs it was of the end of the sentence too, which no word follows. That own "
        "words make the bias smaller was made a claim after the first verdicts."
    )
    why = (
        "A decoder that leans on the word before goes wrong after a wrong word, and the longer it writes the more "
        "often there was one: the loss of both grows so. After one wrong word the RNN loses 1.6 nats a word and the "
        "Transformer, which can read the answer off the source, 0.16. Training on own words did what it is for: "
        "reading them costs the RNN 0.29 nats a word in place of 1.08, and the Transformer 0.08 in place of 0.31. It "
        "did not pay: the RNN writes at 22 BLEU in place of 43. It may be that steps spent after wrong words are "
        "taken from learning the task, which was not measured."
    )
    change = "Text that has more than one right continuation: there an error can lead to another good sentence."
    claims = (
        Claim(
            "bias",
            "Teacher forcing makes exposure bias: reading its own words costs a model more the further it writes.",
            "L2, claim 23",
            (RNN, TRANSFORMER),
            GROWS,
            (
                Control(LOST, GROWS, True, "The further it writes, the more likely it made an error already."),
                Control(FIRM, GROWS, False, "It makes the same errors, which change nothing that follows."),
            ),
        ),
        Claim(
            "thrown",
            "One wrong word throws a decoder off: what follows it costs more.",
            "the reason given with claim 23",
            tuple(f"{name}, thrown" for name in (RNN, TRANSFORMER)),
            HARMS,
            (
                Control(f"{LOST}, thrown", HARMS, True, "It knows nothing any more."),
                Control(f"{FIRM}, thrown", HARMS, False, "It does not look back."),
            ),
        ),
        Claim(
            "sampling",
            "Training on its own words makes a model write better.",
            "L2, claim 23",
            tuple(f"{model}{OWN}" for model in (RNN, TRANSFORMER)),
            GAINS,
            (
                Control(FIRM_OVER_LOST, GAINS, True, "What an error does not throw off writes better."),
                Control(AGAIN, GAINS, False, "It is the same model."),
            ),
        ),
        Claim(
            "lessens",
            "Training on its own words makes exposure bias smaller.",
            "L2, claim 23",
            tuple(f"{model}{OWN}, bias" for model in (RNN, TRANSFORMER)),
            CALMS,
            (
                Control(f"{FIRM_OVER_LOST}, bias", CALMS, True, "What does not look back has no bias."),
                Control(f"{AGAIN}, bias", CALMS, False, "It is the same model."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        texts, _, widths = SIZES[scale]
        configs = {RNN: ("rnn", ""), TRANSFORMER: ("transformer", "encoder.")}
        found = []
        for name, text in texts.items():
            config, where = configs[name]
            flags = (f"--config=translate/{config}", *text.flags(), f"--model.model.{where}d_model={widths[name]}")
            own = (
                "--model.sampling=ScheduledSampling",
                "--model.sampling.last=0.5",
                f"--model.sampling.passes={PASSES[name]}",
            )
            rates = RATES[name][:1] if scale == "smoke" else RATES[name]
            found += [Arm(name, flags, rates), Arm(name + OWN, (*flags, *own), rates)]
            found += [Arm(AGAIN, flags, rates)] if name == RNN else []
        return found

    @torch.no_grad()
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        of, count, _ = SIZES[scale]
        text = of[RNN]
        lengths = range(text.shortest, text.longest + 1)
        texts = {length: sentences([length], count, HELD_OUT + seed) for length in lengths}
        gaps, after, scores = {}, {}, {}
        for name, run in runs.items():
            model = load_run(run.id)
            batch = batch_of(model, texts[text.longest])
            gaps[name], _ = gap(model.model, batch, text.longest)
            after[name] = thrown(model.model, batch, text.longest)
            written = {length: write(model, some) for length, some in texts.items()}
            scores[name] = bleu([t for n in lengths for t in written[n]], [t for n in lengths for t in texts[n]])
        planted = {}
        for name, lost in ((LOST, True), (FIRM, False)):
            batch = planted_batch(texts[text.longest])
            gaps[name], tokens = gap(Planted(lost, seed), batch, text.longest)
            after[name] = thrown(Planted(lost, seed), batch, text.longest)
            planted[name] = bleu(*(spelt(some) for some in (tokens, batch.targets)))
        missing = float("nan")
        values = {
            **{name: slope(range(len(gaps[name])), gaps[name]) for name in (LOST, FIRM)},
            **{name: slope(range(len(gaps[name])), gaps[name]) if name in gaps else missing for name in PASSES},
            **{f"{name}, thrown": fmean(after.get(name, [missing])) for name in (LOST, FIRM, *PASSES)},
            FIRM_OVER_LOST: planted[FIRM] - planted[LOST],
            f"{FIRM_OVER_LOST}, bias": fmean(gaps[FIRM]) - fmean(gaps[LOST]),
        }
        for name, plain in {AGAIN: RNN, **{name + OWN: name for name in PASSES}}.items():
            values[name] = scores.get(name, missing) - scores.get(plain, missing)
            values[f"{name}, bias"] = fmean(gaps.get(name, [missing])) - fmean(gaps.get(plain, [missing]))
        return Measured(
            values,
            [
                *({"case": name, "position": k + 1, "value": g} for name in gaps for k, g in enumerate(gaps[name])),
                *({"case": name, "after": k, "value": g} for name in after for k, g in enumerate(after[name], start=1)),
                *({"case": name, "value": score} for name, score in scores.items()),
            ],
        )

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = [name + own for name in PASSES for own in ("", OWN)]
        columns = {"position", "after"}
        along = {"bias": "position", "lessens": "position", "thrown": "after"}.get(claim.key)
        wanted = {along} if along else set()
        shown = [row for row in points if row["case"] in names and columns & row.keys() == wanted]
        base = alt.Chart(alt.InlineData(values=shown))
        of, domain = alt.Y("case:N", title=None, sort=names), alt.Scale(domain=names)
        told = [kind("case:N", title=None, scale=domain) for kind in (alt.Color, alt.Shape, alt.StrokeDash)]
        if along is None:
            bleu = alt.X("value:Q", title="BLEU", scale=alt.Scale(zero=False))
            dots = base.encode(bleu, of, *told[:2], tooltip=["case:N", "seed:O", "value:Q"])
            return styled(dots.mark_point(filled=True, size=70).properties(width=180, height=alt.Step(28)))
        after = {"position": "after its own words, not the true ones", "after": "after a wrong word, not the true one"}
        title = ["nats that a word costs more", after[along]]
        unit = {"position": "position in the target, in words", "after": "words after the wrong one"}[along]
        lines = base.encode(
            alt.X(f"{along}:Q", title=unit, scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1)),
            alt.Y("mean(value):Q", title=title),
            *told,
            tooltip=["case:N", f"{along}:Q", "mean(value):Q"],
        )
        both = (lines.mark_line() + lines.mark_point(filled=True, size=40)).properties(width=220, height=200)
        return styled(with_slider(both, shown, along, alt.X("value:Q", title=title), of, unit))


def gap(model: Any, batch: PairBatch, words: int) -> tuple[list[float], Tensor]:
    """Extra nats of the right word after the model's own words rather than the true ones, by position up to so many
    words; and what the model wrote, (B, T)."""
    free, written = free_nats(model, batch)
    return (free - forced_nats(model, batch))[:, :words].mean(dim=0).tolist(), written


def thrown(model: Any, batch: PairBatch, words: int) -> list[float]:
    """Extra nats of each word after place WRONG where another sentence's word was read there."""
    tokens = batch.tokens.clone()
    tokens[:, WRONG] = batch.tokens[:, WRONG].roll(1)
    others = tokens[:, WRONG] != batch.tokens[:, WRONG]
    more = forced_nats(model, batch, tokens) - forced_nats(model, batch)
    return more[others, WRONG:words].mean(dim=0).tolist()


def planted_batch(texts: Sequence[str]) -> PairBatch:
    """Words (B, T) by their places in WORDS, after a 0."""
    target = torch.tensor([[WORDS.index(word) for word in text.split()] for text in texts])
    tokens = torch.cat((torch.zeros_like(target[:, :1]), target[:, :-1]), dim=1)
    return PairBatch(target, torch.ones_like(target, dtype=torch.bool), tokens, target, torch.arange(len(texts)))


def spelt(tokens: Tensor) -> list[str]:
    return [" ".join(WORDS[word] for word in row) for row in tokens.tolist()]


class Planted:
    """Knows the source, and prefers a wrong word to the right one at one place in ten.

    Args:
        lost: if True, it knows nothing once it has read a word that is not the source's.
    """

    def __init__(self, lost: bool, seed: int) -> None:
        self.lost, self.seed = lost, seed

    def begin(self, source: Tensor, source_mask: Tensor) -> dict[str, Any]:
        errs = torch.rand(source.shape, generator=torch.Generator().manual_seed(self.seed)) < 0.1
        return {"source": source, "errs": errs, "read": 0, "right": torch.ones(len(source), dtype=torch.bool)}

    def step(self, tokens: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        t, source = state["read"], state["source"]
        right = state["right"] & (tokens == source[:, t - 1]) if t and self.lost else state["right"]
        logits = 4.0 * F.one_hot(source[:, t], len(WORDS))
        logits = logits + 5.0 * state["errs"][:, t, None] * F.one_hot((source[:, t] + 1) % len(WORDS), len(WORDS))
        return torch.where(right[:, None], logits, 0.0), state | {"read": t + 1, "right": right}
