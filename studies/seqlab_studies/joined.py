"""Translating several sentences in one, by a model that was trained on single ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqlab.study.arms import Arm
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import load_run
from seqlab_studies.lib.copying import bleu
from seqlab_studies.lib.corpora import PAIRS, corpus, needed
from seqlab_studies.lib.translations import translate

if TYPE_CHECKING:
    from altair import TopLevelMixin

NONE, ENCODINGS = "NoPositions", ("Sinusoidal", "Learned", "RoPE")
JOINED, SENTENCES, LONGEST = (1, 2, 3, 4), 480, 96
"""Sentences joined into one, sentences translated in all, and the most words of a source or a target."""
LEFT = "the share of BLEU that is left when four sentences are joined"
COLLAPSES = Rule(LEFT, high=0.5, beyond=0.1, possible=(0, math.inf))
KEEPS = Rule(LEFT, low=0.9, beyond=0.1, possible=(0, math.inf))
LEARNT = Rule("BLEU of single sentences", low=8, beyond=3)
ONE_BY_ONE, FIRST = "one by one, then joined", "the first sentence of four only"
OF_ANOTHER = "Sinusoidal, of another source"


def learnt(*names: str) -> tuple[Control, ...]:
    return (
        *(Control(f"{name}, single", LEARNT, True, "It has learned to translate.") for name in names),
        Control(f"{OF_ANOTHER}, single", LEARNT, False, "What does not read its source must not score."),
    )


class Joined(Study):
    name = "joined"
    question = "What becomes of a translation when four sentences are given as one?"
    matched = (
        "Short sentences of Tatoeba, English to German, two layers of 64 channels on either side, 800 steps at cpu "
        f"scale, two learning rates each. The same {SENTENCES} sentences of the test set are translated one by one and "
        "joined by two, three and four, all with the same words in all, so that only the length differs; BLEU over the "
        "references joined alike. The encoding is that of the encoder and the decoder."
    )
    why = (
        "It collapses, with positions as without, so that positions are not what it is about. All models have learned "
        "that a text is one sentence: of four joined ones they write few words and end, and these mix what all four "
        "say."
    )
    change = "Training on joined sentences too, or on documents."
    claims = (
        Claim(
            "collapses",
            "Without positions quality collapses with length.",
            "L0, claim 15",
            (NONE,),
            COLLAPSES,
            (
                Control(FIRST, COLLAPSES, True, "Three of four sentences are missing."),
                Control(ONE_BY_ONE, COLLAPSES, False, "Its sentences are single ones."),
                *learnt(NONE),
            ),
        ),
        Claim(
            "any-length",
            "With positions the length of the text does not matter.",
            "L0, L1 and L3, claims 15 and 16",
            ENCODINGS,
            KEEPS,
            (
                Control(ONE_BY_ONE, KEEPS, True, "Its sentences are single ones."),
                Control(FIRST, KEEPS, False, "Three of four sentences are missing."),
                *learnt(*ENCODINGS),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke" or needed(*PAIRS):
            return ()
        steps = 800 if scale == "cpu" else 8000
        fit = (
            "--config=translate/transformer",
            *(f"--data.{split}={corpus(path)}" for split, path in zip(("train", "val", "test"), PAIRS, strict=True)),
            *("--data.source_tokenizer.min_count=2", "--data.target_tokenizer.min_count=2"),
            *(f"--data.max_len={LONGEST}", "--model.model.encoder.d_model=64", "--model.warmup_steps=100"),
            *("--trainer.callbacks=null", f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps}"),
        )
        return [
            Arm(
                name, (*fit, f"--model.model.positions={name}", f"--model.model.encoder.positions={name}"), (2e-3, 4e-3)
            )
            for name in (NONE, *ENCODINGS)
        ]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            missing = needed(*PAIRS) or "no model is trained at smoke scale"
            return Measured({}, [], {claim.key: missing for claim in self.claims})
        path = corpus(PAIRS[-1])
        assert isinstance(path, Path)
        lines = path.read_text(encoding="utf-8").splitlines()[:SENTENCES]
        sources, references = ([line.split("\t")[side] for line in lines] for side in (0, 1))
        wrote = {
            name: {n: translate(loaded, joined(sources, n)) for n in JOINED}
            for name, loaded in ((name, load_run(run.id)) for name, run in runs.items())
        }
        return compared(wrote, references)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        scale = alt.Scale(domain=[NONE, *ENCODINGS])
        base = alt.Chart(alt.InlineData(values=points)).encode(
            alt.X("sentences:Q", title="sentences in one", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(nice=False)),
            alt.Y("mean(value):Q", title="BLEU"),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            alt.StrokeDash("model:N", title=None, scale=scale),
            tooltip=["model:N", "sentences:Q", "mean(value):Q"],
        )
        lines = (base.mark_line() + base.mark_point(filled=True, size=45)).properties(width=220, height=200)
        value, of = alt.X("value:Q", title="BLEU"), alt.Y("model:N", title=None, sort=[NONE, *ENCODINGS])
        return styled(with_slider(lines, points, "sentences", value, of, "sentences in one"))


def joined(texts: Sequence[str], count: int) -> list[str]:
    """Texts joined in groups of so many."""
    return [" ".join(texts[at : at + count]) for at in range(0, len(texts), count)]


def compared(wrote: Mapping[str, Mapping[int, Sequence[str]]], references: Sequence[str]) -> Measured:
    """
    Args:
        wrote: translations by model, then by the number of sentences joined into one.
    """
    most = JOINED[-1]
    scores = {name: {n: bleu(of[n], joined(references, n)) for n in JOINED} for name, of in wrote.items()}
    single = wrote[ENCODINGS[0]][1]
    best = scores[ENCODINGS[0]][1]
    values = {name: of[most] / max(of[1], 1e-9) for name, of in scores.items()}
    values |= {f"{name}, single": of[1] for name, of in scores.items()}
    values[f"{OF_ANOTHER}, single"] = bleu([*single[1:], single[0]], references)
    values[ONE_BY_ONE] = bleu(joined(single, most), joined(references, most)) / best
    values[FIRST] = bleu(single[::most], joined(references, most)) / best
    points = [{"model": name, "sentences": n, "value": value} for name, of in scores.items() for n, value in of.items()]
    return Measured(values, points)
