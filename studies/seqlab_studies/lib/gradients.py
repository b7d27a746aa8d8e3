"""Gradients through time in saturating recurrences, and their figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.probes.gates import HIGH
from seqlab.recurrence import RNN
from seqlab.recurrence.fused import FusedRecurrence
from seqlab.study.charts import styled, with_slider

if TYPE_CHECKING:
    from altair import TopLevelMixin

BATCH, LENGTH, WIDTH, BACK = 4, 128, 64, 100
NOTHING = 1e-40
"""Smallest gradient; smaller ones, including 0, count as this."""
BIASES = "RNN saturated by biases"
SAVED = f"{BIASES}, slopes 1"


def orthogonal(gain: float = 1.0, bias: float = 0.0) -> RNN:
    """An RNN with an orthogonal input matrix, and an orthogonal recurrent matrix times a gain. Biases are plus or minus
    `bias`."""
    model = RNN(WIDTH).double()
    with torch.no_grad():
        weight_ih, weight_hh, bias_ih, bias_hh = model.weights()[0][0]
        nn.init.orthogonal_(weight_ih)
        nn.init.orthogonal_(weight_hh, gain)
        bias_ih.copy_(bias * torch.randn_like(bias_ih).sign())
        bias_hh.zero_()
    return model


def lifted(model: FusedRecurrence, x: Tensor, least: float = HIGH) -> Tensor:
    """The outputs (B, T, D) of a tanh RNN over x (B, T, D), with a gradient of 1 where a tanh is beyond `least`."""
    ((weight_ih, weight_hh, bias_ih, bias_hh),) = model.weights()[0]
    h, outputs = x.new_zeros(len(x), weight_hh.shape[1]), []
    for of_x in F.linear(x, weight_ih, bias_ih).unbind(1):
        before = of_x + F.linear(h, weight_hh, bias_hh)
        h = before.tanh()
        h = torch.where(h.abs() >= least, before + (h - before).detach(), h)
        outputs.append(h)
    return torch.stack(outputs, dim=1)


def logarithm(ratio: Tensor) -> float:
    return math.log10(max(float(ratio), NOTHING))


def gradient_lines(rows: list[dict[str, Any]], color: Any, dash: Any) -> Any:
    """Lines of `gradient` over `back`, one per seed, with the Altair encodings `color` and `dash`."""
    import altair as alt

    logarithmic = alt.Scale(type="log", domain=[1e-30, 1e3], clamp=True)
    title = "gradient, that of its own input = 1"
    height = alt.Y("gradient:Q", title=title, scale=logarithmic, axis=alt.Axis(format="~e", tickCount=8))
    base = alt.Chart(alt.InlineData(values=rows)).encode(alt.X("back:Q", title="steps back"), height, color, dash)
    return base.encode(alt.Detail("seed:O")).mark_line(clip=True).properties(width=200, height=240)


def with_gradients(rows: list[dict[str, Any]], lines: Any, names: list[str]) -> TopLevelMixin:
    """Gradient lines, and below them the gradient of each `model` at a selected number of steps back."""
    import altair as alt

    value = alt.X("gradient:Q", title="gradient", scale=alt.Scale(type="log"), axis=alt.Axis(format="~e", tickCount=4))
    return styled(with_slider(lines, rows, "back", value, alt.Y("model:N", title=None, sort=names), "steps back"))
