"""Several heads: whether they are better than one, what they look at, and which are missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.probes.ablation import Head, heads_of, left_out
from seqlab.probes.attention_weights import recorded_weights
from seqlab.study.arms import Arm
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.copying import slope
from seqlab_studies.lib.windows import WINDOWS, validation

if TYPE_CHECKING:
    from altair import TopLevelMixin

HEADS = (1, 2, 4, 8)
WIDTH, LENGTH, FIRST = 64, 64, 8
"""Queries before place FIRST see too little for a role."""
ROLES = {
    "previous": "the character before",
    "same": "the same character, earlier",
    "induction": "what followed the same character",
    "beginning": "the first place",
}
GAIN = Rule("fall of the validation loss for each doubling of the heads, in nats a character,", low=0.02, beyond=0.01)
LOOKS = Rule("weight on a role's places, above even attention's, of the best head,", low=0.3, beyond=0.15)
MISSED = Rule(
    "what leaving it out costs more than leaving out a head at random, in nats a character,", low=0.02, beyond=0.01
)
ONE, MANY, UNTRAINED, AGAIN = "1 heads", f"{HEADS[-1]} heads", "not trained", "1 heads, fitted again"
DOUBLED = f"from one head to {HEADS[-1]}"
EVEN, PLANTED, ALL, NONE = "a head that attends evenly", "a head of the place before", "all heads", "no head left out"


class Heads(Study):
    name = "heads"
    question = "What are several heads for?"
    matched = (
        f"Character models of CPython's documentation, two layers of {WIDTH} channels, rotary positions, at cpu scale "
        f"800 steps of 32 windows of {LENGTH} characters, the best of three learning rates each. More heads are "
        "narrower ones: parameters and FLOPs are the same. Roles and ablations are those of the eight heads' model: "
        f"{WINDOWS} windows of validation, and for what followed the same character {WINDOWS} windows that repeat 32 "
        "random ones. A head is left out by zeros in the place of its output. Whether several are better was first "
        "measured for each number of heads against one, with intervals too wide for three seeds to decide; one slope "
        "over all numbers, with the same rule for a doubling, replaced it after the first verdicts."
    )
    why = (
        "One head has one distribution over places; several can look at several places at once, each with fewer "
        "channels. From one head to eight each doubling is worth 0.034 nats. Looking at the character before is what "
        "a character model learns first, and some head of every seed does it. Other roles, which are known of larger "
        "models, are not seen in two layers after so short a training, and which head is missed most differs by seed."
    )
    change = (
        "Deeper and wider models, words in place of characters, longer training, retraining after leaving heads out."
    )
    published = (
        "Vaswani et al. 2017, table 3, development set of WMT14 English to German, base model of 65M parameters: 24.9 "
        "BLEU with one head, 25.8 with eight. Ours predict characters with models a thousand times smaller, after a "
        "few hundred steps."
    )
    claims = (
        Claim(
            "better",
            "Several heads are better than one.",
            "L1, L2 and L3, claim 19",
            (DOUBLED,),
            GAIN,
            (
                Control("over not trained", GAIN, True, "Training is worth far more."),
                Control(AGAIN, GAIN, False, "It is the same model."),
            ),
        ),
        Claim(
            "roles",
            "Heads take on roles of their own.",
            "L0, L1, L2 and L3, claim 19",
            tuple(ROLES.values()),
            LOOKS,
            (
                Control(PLANTED, LOOKS, True, "That is its role."),
                Control(EVEN, LOOKS, False, "It has none."),
                Control(f"{ROLES['previous']}, {UNTRAINED}", LOOKS, False, "Nothing has taught it."),
            ),
        ),
        Claim(
            "missed",
            "A head that has a role is missed more than another.",
            "L3, claim 19",
            tuple(f"without {role}" for role in ROLES.values()),
            MISSED,
            (
                Control(ALL, MISSED, True, "Without any the model sees one character."),
                Control(NONE, MISSED, False, "The model is as it was."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 800 if scale == "cpu" else 8000
        fit = (
            *("--config=lm/attention", f"--data.seq_len={LENGTH}", "--data.batch_size=32", "--model.warmup_steps=50"),
            *(f"--model.model.d_model={WIDTH}", "--model.model.num_layers=2", "--model.model.positions=RoPE"),
        )
        long = (f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 4}")
        once = ("--trainer.max_steps=1", "--trainer.val_check_interval=1")

        def heads(count: int) -> str:
            return f"--model.model.mixer.num_heads={count}"

        return (
            *(Arm(f"{count} heads", (*fit, *long, heads(count)), (2e-3, 4e-3, 8e-3)) for count in HEADS),
            Arm(AGAIN, (*fit, *long, heads(1)), (2e-3, 4e-3, 8e-3)),
            Arm(UNTRAINED, (*fit, *once, heads(HEADS[-1])), (1e-9,)),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        from seqlab.trained.load import load_run

        if not runs:
            return Measured({}, [], {claim.key: "no model is trained at smoke scale" for claim in self.claims})
        loaded = {name: load_run(run.id) for name, run in runs.items()}
        tokens, targets = validation(loaded[MANY].datamodule)
        loss = {name: nats(of.model, tokens, targets) for name, of in loaded.items()}
        texts = {role: repeated(tokens, seed) if role == "induction" else tokens for role in ROLES}
        scores = {name: roles(loaded[name].model, texts) for name in (MANY, UNTRAINED)}
        model = loaded[MANY].model
        costs = {}
        for head in heads_of(model):
            with left_out(model, [head]):
                costs[head] = nats(model, tokens, targets) - loss[MANY]
        mean = sum(costs.values()) / len(costs)
        values = {DOUBLED: -slope(range(len(HEADS)), [loss[f"{count} heads"] for count in HEADS])}
        values |= {"over not trained": loss[UNTRAINED] - loss[MANY], AGAIN: loss[ONE] - loss[AGAIN]}
        values |= {EVEN: planted("even", tokens), PLANTED: planted("previous", tokens)}
        for name, heads in {ALL: heads_of(model), NONE: []}.items():
            with left_out(model, heads):
                values[name] = nats(model, tokens, targets) - loss[MANY] - mean
        for role, says in ROLES.items():
            best = max(scores[MANY][role], key=scores[MANY][role].__getitem__)
            values |= {says: scores[MANY][role][best], f"without {says}": costs[best] - mean}
            values[f"{says}, {UNTRAINED}"] = max(scores[UNTRAINED][role].values())
        points: Points = [{"model": name, "loss": of} for name, of in loss.items() if name not in (UNTRAINED, AGAIN)]
        for place, (head, cost) in enumerate(costs.items()):
            name = f"layer {place // HEADS[-1] + 1}, head {head[1] + 1}"
            points.append({"head": name, "cost": cost})
            points += [{"head": name, "role": ROLES[role], "weight": scores[MANY][role][head]} for role in ROLES]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        column = {"better": "loss", "roles": "weight", "missed": "cost"}[claim.key]
        base = alt.Chart(alt.InlineData(values=[row for row in points if column in row]))
        if claim.key == "roles":
            table = base.encode(
                alt.X("role:N", title=None, sort=list(ROLES.values()), axis=alt.Axis(labelAngle=-40)),
                alt.Y("head:N", title=None),
                tooltip=["head:N", "role:N", "mean(weight):Q"],
            )
            weight = alt.Scale(scheme="blues", domain=[0, 1])
            squares = table.mark_rect().encode(alt.Color("mean(weight):Q", title="weight above even", scale=weight))
            numbers = table.mark_text(fontSize=11).encode(alt.Text("mean(weight):Q", format=".2f"))
            return styled((squares + numbers).properties(width=180, height=alt.Step(16)))
        title = {
            "loss": "validation loss, nats (less is better)",
            "cost": ["nats that a character costs more", "where this head is left out"],
        }[column]
        one_head = alt.Axis(labelExpr="replace(datum.label, /^1 heads/, '1 head')")
        dots = base.transform_calculate(layer="split(datum.head, ',')[0]").encode(
            alt.X(f"{column}:Q", title=title, scale=alt.Scale(zero=False)),
            alt.Y(f"{'model' if column == 'loss' else 'head'}:N", title=None, axis=one_head),
            *(told("layer:N", legend=None) for told in (alt.Color, alt.Shape)),
            tooltip=["seed:O", f"{column}:Q"],
        )
        return styled(dots.mark_point(filled=True, size=70).properties(width=180, height=alt.Step(20)))


@torch.no_grad()
def roles(model: Any, texts: Mapping[str, Tensor]) -> dict[str, dict[Head, float]]:
    """Score of each head on tokens (B, T), by role."""
    found = dict[str, dict[Head, float]]()
    for role, tokens in texts.items():
        with recorded_weights(model) as weights:
            model(tokens)
        each = {name: score(of, places(role, tokens)) for name, of in weights.items()}
        found[role] = {Head(name, head): float(of[head]) for name, of in each.items() for head in range(len(of))}
    return found


def places(role: str, tokens: Tensor) -> Tensor:
    """(B, T, T): mask of the role's keys for each query of tokens (B, T)."""
    count = tokens.shape[1]
    at = torch.arange(count)
    back = at.unsqueeze(1) - at  # (T, T)
    alike = tokens.unsqueeze(2) == tokens.unsqueeze(1)  # (B, T, T)
    if role == "previous":
        return (back == 1).expand_as(alike)
    if role == "beginning":
        return (at == 0).expand_as(alike)
    if role == "same":
        return alike & (back > 0)
    return F.pad(alike, (1, 0))[..., :-1] & (back >= 0)  # the key before is as the query


def score(weights: Tensor, wanted: Tensor) -> Tensor:
    """(H,): the weight (B, H, T, S) on places (B, T, S), less what even attention has there, over the queries that have
    some such place, from FIRST on."""
    even = torch.ones_like(weights[0, 0]).tril()
    above = ((weights - even / even.sum(-1, keepdim=True)) * wanted.unsqueeze(1)).sum(-1)  # (B, H, T)
    asked = (wanted & even.bool()).any(-1) & (torch.arange(wanted.shape[1]) >= FIRST)  # (B, T)
    found: Tensor = above.transpose(0, 1)[:, asked].mean(-1)
    return found


def planted(kind: str, tokens: Tensor) -> float:
    """The score for the role `previous` of a head that has it, or attends evenly."""
    count = tokens.shape[1]
    even = torch.ones(count, count).tril() / torch.arange(1, count + 1).unsqueeze(1)
    weights = even if kind == "even" else torch.ones(count - 1).diag(-1)
    return float(score(weights.expand(len(tokens), 1, -1, -1), places("previous", tokens)))


def repeated(tokens: Tensor, seed: int) -> Tensor:
    """The same number of windows (B, T), of random tokens among those present, the second half repeating the first."""
    some = torch.unique(tokens)
    shape = len(tokens), tokens.shape[1] // 2
    half = some[torch.randint(len(some), shape, generator=torch.Generator().manual_seed(seed))]
    return torch.cat((half, half), 1)


@torch.no_grad()
def nats(model: Any, tokens: Tensor, targets: Tensor) -> float:
    return float(F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten()))
