"""Cost of attention and recurrences, counted: work and memory by the length of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqlab.attention import Attention, GatedDeltaNet, LatentAttention, LinearAttention, Mamba2
from seqlab.attention.patterns import Bidirectional, Causal
from seqlab.budgets import decoding_flops, forward_flops
from seqlab.mixer import Mixer
from seqlab.recurrence import GRU, LSTM, RNN, Mamba, MinGRU
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.sizes import preset
from seqlab_studies.lib.timing import exponent

if TYPE_CHECKING:
    from altair import TopLevelMixin

WIDTH, STATE = 768, 64
USUAL, TAIL = (128, 256, 512), tuple(2**power for power in range(16, 21))
SHORT = (64, 128, 256, 512)
"""Lengths: of usual training, far out, and of what is run step by step to be counted."""
SEEN = {f"{min(of):,} to {max(of):,} tokens": of for of in (USUAL, TAIL)}
GPT2 = "GPT-2 of 124M parameters"
MATRIX, LINEAR = "a product of (T, D) and (D, T)", "a linear layer"
RECURRENCES: dict[str, Callable[[int], Mixer]] = {
    kind.__name__: kind for kind in (RNN, LSTM, GRU, MinGRU, Mamba, Mamba2, LinearAttention, GatedDeltaNet)
}
CACHES: dict[str, Callable[[int], Mixer]] = {
    "Attention": Attention,
    "Attention of one key head": partial(Attention, num_kv_heads=1),
    "LatentAttention": LatentAttention,
}
QUADRATIC = Rule("exponent of the work in length", low=1.9, high=2.1, beyond=0.4)
ONCE = Rule("exponent of the work in length", low=0.9, high=1.1, beyond=0.4)
GROWS = Rule("exponent of the bytes, or of the work of a step, in length", low=0.9, high=1.1, beyond=0.4)
STAYS = Rule("exponent of the bytes, or of the work of a step, in length", high=0.1, beyond=0.4)
"""Each rule holds its own exponent, and is refuted from half-way to the next."""
MORE = Rule("work with the mask, over work without,", low=1.05, beyond=0.04)


class Cost(Study):
    name = "cost"
    question = "What does attention cost, and what does a recurrence?"
    matched = (
        "Nothing is trained and nothing is timed: work is counted in FLOPs, two for each multiply-add of matrices, by "
        "seqlab's formulae, and where it says so by torch's FlopCounterMode of what is run. Exponents are slopes of "
        f"log(work) over log(length). The attention layer is {WIDTH} wide as GPT-2's; recurrences, caches and states "
        f"are of layers of {STATE} channels."
    )
    why = (
        "Attention's own products grow with the square of the length; its projections, the feed-forward and the "
        f"output layer do not. In a block of width d both are equal at 6 d tokens ({6 * WIDTH:,} in this GPT-2), and "
        "far below that the whole model is as good as linear. A mask takes no product away where all are made and "
        "adds none; a kernel that skips what is masked makes half of them."
    )
    change = "Narrower models of longer texts. Kernels and caches that keep only a window of the text."
    claims = (
        Claim(
            "quadratic",
            "Attention is quadratic in the length of the text.",
            "L2 and L3, claim 5",
            (
                "scores and their sums",
                *(f"{part}, {lengths}" for part in ("attention layer", GPT2) for lengths in SEEN),
                *(f"{GPT2}, {lengths}, by torch" for lengths in SEEN),
            ),
            QUADRATIC,
            (
                Control(MATRIX, QUADRATIC, True, "Each of T rows meets each of T columns."),
                Control(LINEAR, QUADRATIC, False, "Each token is multiplied by itself."),
            ),
            exact=True,
        ),
        Claim(
            "linear",
            "A recurrence is linear in the length of the text.",
            "L2 and L3, claim 5",
            (*RECURRENCES, *(f"{name}, by torch" for name in RECURRENCES)),
            ONCE,
            (
                Control(LINEAR, ONCE, True, "Each token is multiplied by itself."),
                Control(MATRIX, ONCE, False, "Each of T rows meets each of T columns."),
            ),
            exact=True,
        ),
        Claim(
            "grows",
            "Attention's memory is its limit: it grows with all that was read, and with it the work of a token.",
            "L2 and L3, claim 5",
            (*(f"{name}, bytes" for name in CACHES), "Attention, a step far out"),
            GROWS,
            (
                Control("all inputs, bytes", GROWS, True, "They are as many as the tokens."),
                Control("LSTM, bytes", GROWS, False, "Two vectors at any length."),
            ),
            exact=True,
        ),
        Claim(
            "stays",
            "A recurrence's memory does not grow, nor does the work of a token.",
            "L2 and L3, claim 5",
            (*(f"{name}, bytes" for name in RECURRENCES), *(f"{name}, a step far out" for name in RECURRENCES)),
            STAYS,
            (
                Control("the last input, bytes", STAYS, True, "It is one."),
                Control("all inputs, bytes", STAYS, False, "They are as many as the tokens."),
            ),
            exact=True,
        ),
        Claim(
            "mask",
            "Masking what comes later costs more computation.",
            "L1, claim 5",
            ("by formula", "by torch", "the mask's additions counted", "a kernel that skips what is masked"),
            MORE,
            (
                Control("twice as many tokens", MORE, True, "More tokens are more work."),
                Control("the same layer twice", MORE, False, "It is the same work."),
            ),
            exact=True,
        ),
    )

    @torch.no_grad()
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        values: dict[str, float] = {}
        points: Points = []
        for case, amounts in by_length():
            values[case] = exponent(amounts)
            points += [{"case": case, "length": at, "amount": of} for at, of in amounts.items()]
        for case, ratio in masked().items():
            values[case] = ratio
            points.append({"case": case, "times": ratio})
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = [*claim.cases, *(control.case for control in claim.controls)]
        rows = [row for row in points if row["case"] in names]
        if claim.key == "mask":
            marks = (
                alt.Chart(alt.InlineData(values=rows))
                .mark_point(filled=True, size=70)
                .encode(alt.X("times:Q", title="work with the mask / without"), alt.Y("case:N", title=None, sort=names))
            )
            one = alt.Chart(alt.InlineData(values=[{"times": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="times:Q")
            return styled((one + marks).properties(width=150, height=alt.Step(20)))
        for lengths in SEEN:  # a case of both is one line
            names = [name.replace(f", {lengths}", "") for name in names]
            rows = [row | {"case": row["case"].replace(f", {lengths}", "")} for row in rows]
        names = [*dict.fromkeys(names)]
        shown = alt.param(name="shown", value=names[0], bind=alt.binding_select(options=names, name="shown: "))
        unit = "bytes, or FLOPs" if claim.key in ("grows", "stays") else "FLOPs"
        log, amount = partial(alt.Scale, type="log"), alt.Axis(format="~e", tickCount=4)
        line = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="tokens", scale=log(base=2), axis=alt.Axis(format=",d", values=[64, 2**11, 2**16])),
            alt.Y("amount:Q", title=unit, scale=log(), axis=amount),
            color=alt.when("datum.case == shown").then(alt.value("#000")).otherwise(alt.value("#bbb")),
            tooltip=["case:N", "length:Q", "amount:Q"],
        )
        chosen = line.transform_filter("datum.case == shown").add_params(shown)
        lines = line.mark_line().encode(detail="case:N") + chosen.mark_line() + chosen.mark_point(filled=True, size=50)
        value, of = alt.X("amount:Q", title=unit, axis=amount), alt.Y("case:N", title=None, sort=names)
        return styled(with_slider(lines.properties(width=220, height=240), rows, "length", value, of, "tokens"))


Amounts = dict[int, float]
"""Work or bytes, by length."""


def by_length() -> Iterator[tuple[str, Amounts]]:
    """Work or bytes of each case, by length."""
    attention = Attention(WIDTH, num_heads=12, pattern=Bidirectional)
    linear = nn.Linear(WIDTH, WIDTH, device="meta")
    gpt2 = preset("gpt2", seq_len=max(TAIL)).eval()
    yield "scores and their sums", {at: float(attention.flops(at, at)) for at in (*USUAL, *TAIL)}
    for lengths, of in SEEN.items():
        yield f"attention layer, {lengths}", {at: forward_flops(attention, at) for at in of}
        yield f"{GPT2}, {lengths}", {at: forward_flops(gpt2, at) for at in of}
        yield (
            f"{GPT2}, {lengths}, by torch",
            {at: counted(gpt2, torch.empty(1, at, dtype=torch.int64, device="meta")) for at in of},
        )
    yield MATRIX, {at: counted(torch.inner, *(torch.empty(at, WIDTH, device="meta"),) * 2) for at in TAIL}
    yield LINEAR, {at: counted(linear, torch.empty(at, WIDTH, device="meta")) for at in TAIL}

    x = torch.randn(1, max(SHORT), STATE)
    yield "all inputs, bytes", {at: 4.0 * x[:, :at].numel() for at in SHORT}
    yield "the last input, bytes", {at: 4.0 * x[:, at - 1].numel() for at in SHORT}
    yield "Attention, a step far out", {at: decoding_flops(Attention(STATE), at) for at in TAIL}
    for name, make in RECURRENCES.items():
        mixer: Any = make(STATE)
        yield name, {at: forward_flops(mixer, at) for at in TAIL}
        yield f"{name}, by torch", {at: counted(mixer, x[:, :at]) for at in SHORT}
        yield f"{name}, a step far out", {at: decoding_flops(mixer, at) for at in TAIL}
    for name, make in (RECURRENCES | CACHES).items():
        mixer = make(STATE)
        yield f"{name}, bytes", {at: sum(entry.nbytes for entry in mixer(x[:, :at])[1].values()) for at in SHORT}


def masked() -> dict[str, float]:
    """Work with a mask over that without, by case, for one layer over a long text."""
    length, heads = TAIL[0], 12
    free, causal = (
        Attention(WIDTH, num_heads=heads, pattern=pattern).to("meta") for pattern in (Bidirectional, Causal)
    )
    x = torch.empty(1, length, WIDTH, device="meta")
    whole, seen = forward_flops(free, length), (length + 1) / (2 * length)
    return {
        "by formula": forward_flops(causal, length) / whole,
        "by torch": counted(causal, x) / counted(free, x),
        "the mask's additions counted": 1 + heads * length**2 / whole,
        "a kernel that skips what is masked": 1 - free.flops(length, length) * (1 - seen) / whole,
        "twice as many tokens": counted(free, x.repeat(1, 2, 1)) / counted(free, x),
        "the same layer twice": counted(free, x) / counted(free, x),
    }


def counted(run: Callable[..., Any], *inputs: Tensor) -> int:
    """FLOPs as torch counts them: attention as two products, fused cells step by step."""
    plain = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)
    with catch_warnings(action="ignore"), FlopCounterMode(display=False) as counter, plain[0], plain[1]:
        run(*inputs)
    found: int = counter.get_total_flops()
    return found
