"""A decoder that may look ahead, and the purpose of the mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.attention import Attention
from seqlab.attention.patterns import PrefixCausal
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from seqlab.study.arms import Arm
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.windows import validation

if TYPE_CHECKING:
    from altair import TopLevelMixin

WIDTH, LENGTH, SYMBOLS = 64, 64, 50
PLACES = range(8, LENGTH, 8)
"""Places of the characters to be predicted."""
MASKED, UNMASKED, AGAIN = "masked", "not masked", "masked, fitted again"
WHOLE, BEFORE = "reads the whole text", "reads what stands before"
LEAKS = Rule("loss over a whole text, less that of the masked decoder, in nats a character,", high=-1.0, beyond=0.5)
LOST = Rule(
    "loss where later characters are not there yet, less the masked decoder's, in nats a character,",
    low=0.5,
    beyond=0.25,
)
SAME = Rule("log10 of the largest change of an output by later characters, over the outputs' size,", high=-12, beyond=9)
MIXERS: dict[str, Any] = {
    "attention, masked": Attention,
    "GRU": GRU,
    "attention, not masked": partial(Attention, pattern=partial(PrefixCausal, LENGTH)),
}


class Masks(Study):
    name = "masks"
    question = "Why must a decoder not look ahead?"
    matched = (
        f"Character models of CPython's documentation: two layers of {WIDTH} channels, rotary positions, at cpu scale "
        f"600 steps of 32 windows of {LENGTH} characters, the best of two learning rates each; one with the causal "
        "mask and one that sees the whole window. Losses are of windows of validation. What later characters change "
        "is measured in float64 at initialisation."
    )
    why = (
        "The character to be predicted stands in the window, one place on: who may look has nothing to learn but to "
        "copy it, and when it has to write there is nothing to copy. With the mask no output depends on what comes "
        "later, so that all places of a text can be trained at once."
    )
    change = "Nothing: a target that can be seen is no target. Encoders hide theirs, and are not asked to write."
    claims = (
        Claim(
            "leaks",
            "A decoder that looks ahead seems to predict nearly all.",
            "L1 and L2, claim 22",
            (UNMASKED,),
            LEAKS,
            (
                Control("the next character itself", LEAKS, True, "It costs nothing."),
                Control(AGAIN, LEAKS, False, "It is the same model."),
            ),
        ),
        Claim(
            "lost",
            "A decoder that looked ahead in training cannot write: without what comes later it is lost.",
            "L1 and L2, claim 22",
            (f"{UNMASKED}, writing",),
            LOST,
            (
                Control("frequencies", LOST, True, "They know nothing of the text before."),
                Control(f"{AGAIN}, writing", LOST, False, "It is the same model."),
            ),
        ),
        Claim(
            "parallel",
            "With the mask all places are trained at once, as if read one after the other.",
            "L1 and L2, claim 22",
            ("attention, masked",),
            SAME,
            (
                Control("GRU", SAME, True, "It reads one after the other."),
                Control("attention, not masked", SAME, False, "Each output is of the whole text."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 600 if scale == "cpu" else 6000
        fit = (
            *("--config=lm/attention", f"--data.seq_len={LENGTH}", "--data.batch_size=32", "--model.warmup_steps=50"),
            *(f"--model.model.d_model={WIDTH}", "--model.model.num_layers=2", "--model.model.positions=RoPE"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 2}"),
        )
        sees = ("--model.model.mixer.pattern=PrefixCausal", f"--model.model.mixer.pattern.prefix_len={LENGTH}")
        fits = {MASKED: fit, AGAIN: fit, UNMASKED: (*fit, *sees)}
        return [Arm(name, options, (4e-3, 8e-3)) for name, options in fits.items()]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        from seqlab.trained.load import load_run

        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            tokens = torch.randint(SYMBOLS, (4, LENGTH))
            values = {name: changes(model_of(mixer), tokens) for name, mixer in MIXERS.items()}
        points: Points = [{"model": name, "change": change} for name, change in values.items()]
        if not runs:
            return Measured(values, points, dict.fromkeys(("leaks", "lost"), "no model is trained at smoke scale"))
        loaded = {name: load_run(run.id) for name, run in runs.items()}
        tokens, _ = validation(loaded[MASKED].datamodule)
        losses = {
            name: {WHOLE: whole(of.model, tokens), BEFORE: before(of.model, tokens)} for name, of in loaded.items()
        }
        own = losses[MASKED][WHOLE]
        for name, of in losses.items():
            values |= {name: of[WHOLE] - own, f"{name}, writing": of[BEFORE] - losses[MASKED][BEFORE]}
            points += [{"decoder": name, "told": told, "loss": loss} for told, loss in of.items()]
        values |= {"the next character itself": -own, "frequencies": entropy(tokens) - losses[MASKED][BEFORE]}
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        column = "change" if claim.key == "parallel" else "loss"
        base = alt.Chart(alt.InlineData(values=[row for row in points if column in row]))
        if column == "change":
            shown = [row | {"change": 10 ** row["change"]} for row in points if column in row]
            rows = alt.Chart(alt.InlineData(values=shown)).encode(
                alt.X(
                    "change:Q",
                    title=["what comes later changes of an output", "1 = all of it, 10⁻²⁰ = nothing"],
                    scale=alt.Scale(type="log", domain=[1e-21, 10]),
                    axis=alt.Axis(format="~e", values=[1e-20, 1e-15, 1e-10, 1e-5, 1]),
                ),
                alt.Y("model:N", title=None),
                tooltip=["model:N", "seed:O", "change:Q"],
            )
            return styled(rows.mark_point(filled=True, size=80).properties(width=190, height=alt.Step(26)))
        told = [channel("told:N", title=None) for channel in (alt.Color, alt.Shape)]
        rows = base.encode(
            alt.X("loss:Q", title="loss, nats a character (less is better)"),
            alt.Y("decoder:N", title=None),
            *told,
            tooltip=["decoder:N", "told:N", "seed:O", "loss:Q"],
        )
        return styled(rows.mark_point(filled=True, size=80).properties(width=200, height=alt.Step(30)))


def model_of(mixer: Callable[..., Any]) -> Any:
    positions = NoPositions if mixer is GRU else RoPE
    return DecoderLM(SYMBOLS, LENGTH, d_model=WIDTH, num_layers=2, mixer=mixer, positions=positions).double()


@torch.no_grad()
def changes(model: Any, tokens: Tensor) -> float:
    """log10 of the largest relative change in outputs for tokens (B, T) when later ones are left out."""
    together = model(tokens)[0]
    apart = torch.stack([model(tokens[:, :place])[0][:, -1] for place in PLACES], 1)
    far = (together[:, [place - 1 for place in PLACES]] - apart).abs().max() / together.square().mean().sqrt()
    return math.log10(max(float(far), 1e-20))


@torch.no_grad()
def whole(model: Any, tokens: Tensor) -> float:
    """Nats of the characters at PLACES of tokens (B, T), from outputs over all of them."""
    logits = model(tokens)[0]
    return mean_nats([logits[:, place - 1] for place in PLACES], tokens)


@torch.no_grad()
def before(model: Any, tokens: Tensor) -> float:
    """The same from outputs over only the tokens before each place."""
    return mean_nats([model(tokens[:, :place])[0][:, -1] for place in PLACES], tokens)


def mean_nats(logits: list[Tensor], tokens: Tensor) -> float:
    """Mean nats of the characters at PLACES, from logits (B, V) for each."""
    targets = tokens[:, list(PLACES)]
    return float(F.cross_entropy(torch.stack(logits, 1).flatten(0, 1), targets.flatten()))


def entropy(tokens: Tensor) -> float:
    """Nats of a character by its frequency."""
    shares = torch.bincount(tokens.flatten()).double() / tokens.numel()
    return float(-(shares * shares.clamp(min=1e-12).log()).sum())
