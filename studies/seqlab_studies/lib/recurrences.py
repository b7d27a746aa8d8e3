"""Gradients, saturation and gates of a recurrence on the adding problem, before and after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from seqlab.probes.gates import Activations, activations, saturated
from seqlab.probes.through_time import gradients_back, gradients_of
from seqlab.study.charts import styled
from seqlab.study.study import Points
from seqlab.trained.load import LoadedRun
from seqlab_studies.lib.gradients import lifted

if TYPE_CHECKING:
    from altair import TopLevelMixin

ROWS = 256
AFTER, BEFORE = "trained", "not trained"


class Seen(NamedTuple):
    """Measurements of one model.

    Attributes:
        back: (T,) gradients, as in `gradients_back`.
        lifted: the same gradients with slopes of 1 for saturated tanhs; None unless the model is an RNN.
        shares: fractions of saturated "gates" and "tanhs".
        kept: () result of the function `kept`; None for an RNN, which has no such gate.
    """

    back: Tensor
    lifted: Tensor | None
    shares: dict[str, float]
    kept: Tensor | None


def through(model: Any, inputs: Tensor) -> Seen:
    """Measures a model with one recurrent layer, without norms or residuals, over inputs (B, T, F) in float64."""
    mixer = model.encoder.stack.blocks[0].mixer
    back = gradients_of(model, lambda: model(inputs))
    x = model.encoder.embed(inputs).detach()
    with torch.no_grad():
        (layer,) = activations(mixer, x)
    shares = saturated([layer])
    if "hidden" in layer:
        return Seen(back, gradients_back(x.requires_grad_(), lifted(mixer, x)), shares, None)
    return Seen(back, None, shares, kept(layer))


def kept(layer: Activations) -> Tensor:
    """(): median over rows of the largest product over units of the forget (or update) gates through time, excluding
    the first step."""
    gates = layer["forget" if "forget" in layer else "update"]  # (B, T, W)
    return gates[:, 1:].prod(dim=1).amax(dim=1).median()


def given(loaded: LoadedRun) -> Tensor:
    """(ROWS, T, F) in float64: the first inputs of a run's test split."""
    data: Any = loaded.datamodule
    data.setup("test")
    batches = [batch.inputs for batch in data.test_dataloader()]
    return torch.cat(batches)[:ROWS].double()


def first_weights(loaded: LoadedRun) -> Any:
    """The untrained model of a regression run, rebuilt from its seed."""
    from seqlab.config.configs import build_task

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(loaded.config["seed_everything"])
        task = build_task(loaded.config, {"num_features": 2, "seq_len": loaded.task.seq_len})
    return task.model.eval()


def gates_drawn(rows: Points) -> TopLevelMixin:
    """Chart of the largest gate product and of the saturated fractions, before and after training."""
    import altair as alt

    scale = alt.Scale(domain=[AFTER, BEFORE])
    when = [channel("when:N", title=None, scale=scale) for channel in (alt.Color, alt.Shape)]
    log = alt.Scale(type="log", domain=[1e-30, 1], clamp=True)
    values = {
        "kept": alt.X("kept:Q", title="product of forget gates", scale=log, axis=alt.Axis(format="~e", tickCount=4)),
        "gates": alt.X("share:Q", title="saturated gates, share", scale=alt.Scale(domain=[0, 1])),
        "tanhs": alt.X("share:Q", title="saturated tanhs, share", scale=alt.Scale(domain=[0, 1])),
    }
    charts = []
    for kind, value in values.items():
        shown = [row for row in rows if kind in (row.get("kind"), kind if kind in row else None)]
        base = alt.Chart(alt.InlineData(values=shown)).encode(value, alt.Y("arm:N", title=None), *when)
        marks = base.encode(tooltip=["arm:N", "when:N", "seed:O", value.shorthand])
        charts.append(marks.mark_point(filled=True, size=60).properties(width=200, height=alt.Step(20)))
    return styled(alt.vconcat(*charts))
