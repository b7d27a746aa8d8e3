"""Training time of a recurrence over that of attention, by the kernel that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.attention import Attention, LinearAttention
from seqlab.mixer import Mixer
from seqlab.recurrence import GRU, LSTM, RNN, S4D, Mamba, MinGRU
from seqlab.recurrence.fused import FusedRecurrence
from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.sizes import matched, size_of
from seqlab_studies.lib.timing import Times, Work, on_gpu, timed

if TYPE_CHECKING:
    from altair import TopLevelMixin

Make = Callable[[int], Mixer]
JUDGED = (512, 1024)
"""Lengths that are judged."""
ATTENTION, AGAIN, TWENTY = "attention", "attention again", "attention, twenty times"
AT_ONCE = "{}, all steps at once"
RECURRENT: dict[str, Make] = {
    "RNN, loop in Python": partial(RNN, looped=True),
    "LSTM, loop in Python": partial(LSTM, looped=True),
    "GRU, loop in Python": partial(GRU, looped=True),
    "RNN, PyTorch's layer": RNN,
    "LSTM, PyTorch's layer": LSTM,
    "GRU, our own backward": GRU,
}
PARALLEL: dict[str, Make] = {"MinGRU": MinGRU, "S4D": S4D, "Mamba": Mamba, "LinearAttention": LinearAttention}
ONE, MANY = "one text", "many texts"
SLOWER = Rule("time of forward and backward pass, over that of the other,", low=10, beyond=5)
"""Ten is the least that the lectures say; half of it is less than that, whatever the machine."""
BUSY = Rule("share of the device's peak, in percent,", low=85, beyond=35)


class Speed(Study):
    name = "speed"
    question = "Are recurrences 10 to 100 times slower to train?"
    matched = (
        "Forward and backward pass of one layer, each so wide that it has within 10% as many parameters as attention "
        "of 64 channels (512 on a GPU); over 4,096 tokens (65,536) whatever the length, the longer the fewer texts, "
        "or over one text. All steps at once are the same cell with the same weights, given the inputs as if they "
        "were the states before, so that nothing waits. On a CPU the processor time of one thread, so that what else "
        "runs there counts little. All are timed in turns, and each ratio is the median of the ratios of rounds. "
        "PyTorch's LSTM layer is oneDNN's kernel, its RNN layer steps of ATen in C++; the GRU's steps are ours over "
        "ATen's operations. On a GPU all three layers are cuDNN's. This study explores: it was posed a second time "
        "after pilots of one seed, with one text beside many and with the same steps at once."
    )
    why = (
        "A loop in Python pays for each call at each step, and autograd pays again; a kernel over time takes the "
        "same steps one after the other and pays once. With many texts a step is a larger product, and the price of "
        "its call is shared. So the factor is more of how the steps are run than of their order. Attention's own "
        "work grows with the length meanwhile. One thread has no cores that could stand idle, as most of a GPU does "
        "while one step waits for another."
    )
    change = "A GPU, more threads, wider layers: where more can be done at once, more is lost by waiting."
    published = (
        "Feng et al. 2024 (abstract) train a minGRU, whose steps are taken all at once, 175 times as fast as a GRU at "
        "512 tokens, on a T4 GPU. Ours are two CPU cores, which have few steps to take at once."
    )
    claims = (
        Claim(
            "slower",
            "Steps one after the other make RNNs 10 to 100 times slower to train than attention, from 512 tokens on.",
            "L0, L3 and L4, claim 3",
            tuple(f"{name}, {load} of {length}" for name in RECURRENT for load in (ONE, MANY) for length in JUDGED),
            SLOWER,
            (
                Control(TWENTY, SLOWER, True, "It is twenty times the work."),
                Control(AGAIN, SLOWER, False, "It is the same layer."),
            ),
        ),
        Claim(
            "reason",
            "It is the order of the steps: the same steps all at once are 10 to 100 times faster.",
            "L0, L3 and L4, claim 3",
            tuple(f"{name}, {MANY} of {length}, over all at once" for name in RECURRENT for length in JUDGED),
            SLOWER,
            (
                Control(TWENTY, SLOWER, True, "It is twenty times the work."),
                Control(AGAIN, SLOWER, False, "It is the same layer."),
            ),
        ),
        Claim(
            "utilisation",
            "An RNN uses 1 to 2% of a GPU, a Transformer 85 to 92%.",
            "L0, claims 2 and 4",
            ("Transformer",),
            BUSY,
            (
                Control("products of large matrices", BUSY, True, "They are what the peak is said of."),
                Control("RNN, loop in Python", BUSY, False, "Its products are of a few vectors each."),
            ),
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        needs = {"utilisation": "needs the training of whole models on a GPU, whose share of the peak `fit` then logs"}
        if scale == "gpu" and not torch.cuda.is_available():
            return Measured({}, [], needs | dict.fromkeys(("slower", "reason"), "needs a GPU"))
        width, tokens, rounds, lengths = {
            "smoke": (16, 2048, 1, JUDGED),
            "cpu": (64, 4096, 5, (64, 256, *JUDGED)),
            "gpu": (512, 65_536, 5, (64, 256, *JUDGED, 4096)),
        }[scale]
        values: dict[str, float] = {}
        points: Points = []
        threads = torch.get_num_threads()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            torch.set_num_threads(1)
            try:
                for length in lengths:
                    for load, batch in {MANY: tokens // length, ONE: 1}.items():
                        works = layers(width, length, batch, "cuda" if scale == "gpu" else "cpu")
                        found = timed(works, rounds, on_gpu if scale == "gpu" else time.process_time)
                        told, rows = told_of(found, length, load)
                        values |= told
                        points += rows
            finally:
                torch.set_num_threads(threads)
        return Measured(values, points, needs)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        over = "attention" if claim.key == "slower" else "all at once"
        names = [*RECURRENT, *(PARALLEL if claim.key == "slower" else ())]
        of_claim = [row for row in points if row["over"] == over and claim.key != "utilisation"]
        shown = [row for row in of_claim if row["model"] in names]
        title, numbers = f"time / {over}", alt.Axis(format="~g", tickCount=3)
        tokens = alt.X("length:Q", title="tokens", scale=alt.Scale(type="log", base=2), axis=alt.Axis(tickCount=5))
        base = alt.Chart(alt.InlineData(values=shown)).encode(
            tokens,
            alt.Y("times:Q", title=title, scale=alt.Scale(type="log"), axis=numbers),
            color=alt.when("datum.model == picked").then(alt.value("#000")).otherwise(alt.value("#aaa")),
            tooltip=["model:N", "length:Q", "times:Q", "milliseconds:Q", "seed:O"],
        )
        picked = alt.param(name="picked", value=names[0], bind=alt.binding_select(options=names, name="shown: "))
        load = alt.param(name="load", value=MANY, bind=alt.binding_select(options=[MANY, ONE], name="of: "))
        of_load = "datum.load == load"
        grey = base.mark_point(size=25).transform_filter(of_load).add_params(load, picked)
        black = base.mark_point(filled=True, size=70).transform_filter(f"{of_load} && datum.model == picked")
        marks = (grey + black + edge("y", 10, "10 times as long")).properties(width=220, height=240)
        value, of = alt.X("times:Q", title=title, axis=numbers), alt.Y("model:N", title=None, sort=names)
        return styled(with_slider(marks, shown, "length", value, of, "tokens of a sequence", of_load))


def ratio(found: Times, ours: str, theirs: str) -> float:
    """Median over rounds of our time over theirs."""
    return median(our / their for our, their in zip(found[ours], found[theirs], strict=True))


def told_of(found: Times, length: int, load: str) -> tuple[dict[str, float], Points]:
    """The values of the cases at a length, and rows for the figures."""
    values: dict[str, float] = {}
    points: Points = []
    for name in found:
        at_once = AT_ONCE.format(name.split(",")[0])
        for theirs, over, ending in ((ATTENTION, "attention", ""), (at_once, "all at once", ", over all at once")):
            if theirs in found and name not in (ATTENTION, at_once):
                times, spent = ratio(found, name, theirs), 1e3 * median(found[name])
                values[name if name in (AGAIN, TWENTY) else f"{name}, {load} of {length}{ending}"] = times
                row = {"model": name, "load": load, "length": length, "over": over}
                points.append({**row, "times": times, "milliseconds": spent})
    return values, points


def layers(width: int, length: int, batch: int, device: str) -> dict[str, Work]:
    """Forward and backward pass of each layer, all with the size of attention of a width."""
    to = size_of(Attention(width))

    def pass_of(make: Make, run: Callable[[Any, Tensor], Tensor] = whole, times: int = 1) -> Work:
        wide = matched(make, to)
        mixer = make(wide).to(device)
        x, gradient = torch.randn(2, batch, length, wide, device=device)
        x.requires_grad_()

        def both() -> None:
            for _ in range(times):
                run(mixer, x).backward(gradient)  # type: ignore[no-untyped-call]

        return both

    return {
        ATTENTION: pass_of(Attention),
        AGAIN: pass_of(Attention),
        **({TWENTY: pass_of(Attention, times=20)} if length == JUDGED[0] and batch > 1 else {}),
        **{name: pass_of(make) for name, make in (RECURRENT | PARALLEL).items()},
        **{AT_ONCE.format(kind.__name__): pass_of(kind, all_at_once) for kind in (RNN, LSTM, GRU)},
    }


def whole(mixer: Mixer, x: Tensor) -> Tensor:
    return mixer(x)[0]  # type: ignore[no-any-return]


def all_at_once(mixer: FusedRecurrence, x: Tensor) -> Tensor:
    """Outputs (B, T, D) of every step of x (B, T, D), with its own input in place of the state before it."""
    flat = x.flatten(0, 1)
    ((weights,),) = mixer.weights()
    return mixer.cell_step(flat, (flat,) * len(mixer.state_names), weights)[0].view_as(x)
