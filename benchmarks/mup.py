"""Best learning rate at each width with and without `--mup`: the table and the figure of docs/experiments.md.

`python benchmarks/mup.py docs` writes both there. The fits are two sweeps, which continue after a stop. They train
attention with rotary positions on characters of CPython's documentation. At the base width, the largest, both are the
same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import altair as alt

from seqlab.sweeps.fits import score
from seqlab.tracking.runs import SWEEP_TAG, search
from seqlab.tracking.store import Store

WIDTHS = (32, 64, 128, 256)
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
FIT = (
    *("--data.seq_len", "64", "--data.batch_size", "8", "--trainer.max_steps", "150"),
    *("--trainer.val_check_interval", "150", "--trainer.limit_val_batches", "40"),
)
BASE = str(WIDTHS[-1])
Losses = dict[str, dict[str, dict[str, float]]]
"""Validation loss by name, width and learning rate."""


def sweep(mup: str, widths: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Fits each width with each learning rate, and returns the validation losses."""
    name = f"mup-{mup}"
    vary = f"model.model.d_model={','.join(map(str, widths))}", f"model.lr={','.join(map(str, RATES))}"
    options = ("--config", "lm/attention-rope", "--vary", vary[0], "--vary", vary[1], "--sampler", "grid")
    named = ("--name", name, "--experiment", name, "--", "--mup", mup, *FIT)
    subprocess.run([sys.executable, "-m", "seqlab", "sweep", *options, *named], check=True)
    losses: dict[str, dict[str, float]] = {str(width): {} for width in widths}
    for run in search(Store(), experiment=name):
        if run.status == "FINISHED" and SWEEP_TAG not in run.tags:
            task = run.config["model"]["init_args"]
            losses[str(task["model"]["init_args"]["d_model"])][f"{task['lr']:g}"] = score(run, "val/loss")
    return losses


def table(losses: Losses) -> str:
    """Best learning rate and its loss at each width in Markdown, and the loss at the largest width with that rate."""
    lines = ["| d_model | | best rate | val/loss | val/loss at 256 with that rate |", "|---|---|---|---|---|"]
    for name, by_width in losses.items():
        for width, by_rate in by_width.items():
            best = min(by_rate, key=by_rate.__getitem__)
            lines.append(f"| {width} | {name} | {best} | {by_rate[best]:.3f} | {by_width[BASE][best]:.3f} |")
    return "\n".join(lines)


def drawing(losses: Losses) -> alt.HConcatChart:
    """Loss by learning rate, a line for each width, without and with `--mup`."""
    charts = []
    for name, by_width in losses.items():
        shown = [
            {"rate": float(rate), "loss": loss, "width": int(width)}
            for width, by_rate in by_width.items()
            for rate, loss in by_rate.items()
        ]
        lines = alt.Chart(alt.InlineData(values=shown), title=name).properties(width=260, height=220)
        charts.append(
            lines.mark_line(point=True).encode(
                x=alt.X("rate:Q", title="learning rate", scale=alt.Scale(type="log", nice=False)),
                y=alt.Y("loss:Q", title="val/loss", scale=alt.Scale(zero=False)),
                color=alt.Color("width:O", title="d_model", scale=alt.Scale(scheme="viridis")),
                shape=alt.Shape("width:O", title="d_model"),
            )
        )
    return alt.hconcat(*charts).resolve_scale(y="shared").configure(background="white", font="sans-serif")


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    plain = sweep("false", WIDTHS)
    losses = {"without --mup": plain, f"with --mup {BASE}": {**sweep(BASE, WIDTHS[:-1]), BASE: plain[BASE]}}
    print(table(losses))
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        (folder / "mup.json").write_text(json.dumps(losses, indent=2) + "\n", encoding="utf-8")
        drawing(losses).save(folder / "mup.svg")


if __name__ == "__main__":
    main()
