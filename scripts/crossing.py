"""Fits the learning curves of docs/leaderboard.md, and writes their tables and figure: `make crossing WIKITEXT=FOLDER`.

At each size every model has its best learning rate of a grid, and several seeds with that rate. After a stop the same
command continues, and models whose curves are stored are not fitted again. Without a folder, the page is written anew
from the stored curves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray

from leaderboard import fitted, rate
from learning_curves import Losses, overtaking, power_law
from seqlab.comparison.rows import short
from seqlab.comparison.statistics import mean
from seqlab.study.charts import COLOURS

PAGE = Path(__file__).parent.parent / "docs/leaderboard.md"
STORED = PAGE.with_suffix("") / "crossing.json"
HYBRID = "[GatedDeltaNet,GatedDeltaNet,GatedDeltaNet,Attention]"
MODELS = {
    "GRU": "GRU",
    "LSTM": "LSTM",
    "Mamba2": "{class_path: Mamba2, head_dim: 48}",
    "GatedDeltaNet": "GatedDeltaNet",
    "3:1 hybrid": HYBRID,
    "Attention-RoPE": "Attention",
}
"""Mixer of each model. Mamba-2's heads divide twice the width at every size. The hybrid has three blocks of
GatedDeltaNet to one of attention without positions."""
FIT = (
    *("--data.seq_len", "128", "--data.batch_size", "16", "--trainer.max_steps", "2000"),
    *("--trainer.val_check_interval", "100", "--trainer.limit_val_batches", "32"),
    *("--model.schedule", "Constant", "--ema", "0.995"),
)
SPLITS, FILES = ("train", "val", "test"), ("train", "valid", "test")
TOKENS_PER_STEP = 2048
SEEN = "Validation loss of six models against tokens, FLOPs and seconds"
SHOWN = (1, 5, 19)
"""Points of a curve whose losses are in the table."""


class Size(NamedTuple):
    """Models of one size.

    Attributes:
        params: number of parameters of each model.
        seeds: number of fits at the best rate.
    """

    name: str
    params: int
    d_model: int
    rates: str
    seeds: int

    @property
    def experiment(self) -> str:
        return f"crossing-{self.params}"


SIZES = (
    Size("0.4M", 410_000, 96, "1e-3,2e-3,4e-3", 5),
    Size("0.1M", 100_000, 48, "2e-3,4e-3,8e-3", 3),
    Size("1.6M", 1_600_000, 192, "5e-4,1e-3,2e-3", 3),
)


def curve(size: Size, model: str, folder: Path, jobs: int) -> dict[str, Any]:
    """Stored form of a model: fits it with each learning rate, and with all seeds at the best one."""
    args = ["--match", "params", "--to", str(size.params), "--match_by", "ffn.d_ff"]
    args += [f"--model.model.d_model={size.d_model}", "--model.model.num_layers=4"]
    args += [f"--model.model.mixer={MODELS[model]}"]
    args += ["--model.model.positions=RoPE"] if MODELS[model] == "Attention" else []
    args += [f"--data.{split}={folder / file}.txt" for split, file in zip(SPLITS, FILES, strict=True)]
    name = f"{size.experiment}-{re.sub('[: ]', '-', model)}"
    seeded = ("seed_everything", "data.seed")
    found = fitted(name, size.experiment, size.seeds, seeded, size.rates, jobs, "lm/gru", *args, *FIT)
    losses = [[round(loss, 5) for _, loss in run.history("val/loss")] for run in found.runs]
    return found.numbers | {"losses": losses}


def tokens_of(losses: Losses) -> NDArray[np.float64]:
    return TOKENS_PER_STEP * 100 * np.arange(1.0, losses.shape[1] + 1)


def table(models: dict[str, Any]) -> list[str]:
    """One line a model, in the order of the last loss."""
    some = next(iter(models.values()))["losses"]
    titles = [f"loss at {short(tokens_of(np.array(some))[place])}" for place in SHOWN]
    head = ["model", *titles, "lr", "FLOPs a token", "state", "tokens/s", "exponent c", "last loss predicted"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for model, found in sorted(models.items(), key=lambda one: np.mean(one[1]["losses"], axis=0)[-1]):
        losses = np.array(found["losses"])
        law, last = power_law(tokens_of(losses), losses), mean(losses.T)
        at = [f"{last.value[place]:.4f} ± {last.half_width[place]:.4f}" for place in SHOWN]
        numbers = [short(found[name]) for name in ("num_flops", "state_size", "tokens_per_s")]
        of_law = [f"{law.exponent[0]:.2f} ({law.exponent[1]:.2f}-{law.exponent[2]:.2f})"]
        of_law += [f"{law.predicted[0]:.4f} ({law.predicted[1]:.4f}-{law.predicted[2]:.4f})"]
        lines.append(f"| {' | '.join([model, *at, rate(found), *numbers, *of_law])} |")
    return lines


def overtakings(models: dict[str, Any]) -> list[str]:
    """Each pair of which one overtakes the other, by the number of tokens."""
    found = []
    for ours in models:
        for theirs in models:
            losses = [np.array(models[name]["losses"]) for name in (ours, theirs)]
            if ours != theirs and (at := overtaking(tokens_of(losses[0]), *losses)):
                found.append(
                    (at.tokens, f"| {ours} | {theirs} | {short(at.tokens)} | {short(at.low)}-{short(at.high)} |")
                )
    head = ["| overtakes | whom | after tokens | 95% interval |", "|---|---|---|---|"]
    return (
        [*head, *(line for _, line in sorted(found))] if found else ["No model overtakes another within these tokens."]
    )


def drawing(stored: dict[str, Any], *, dark: bool = False) -> alt.VConcatChart:
    """Mean loss of each model with its interval, against tokens, FLOPs and seconds; a row a size."""
    rows = []
    for size, models in stored.items():
        for model, found in models.items():
            losses = np.array(found["losses"])
            means = mean(losses.T)
            for place, tokens in enumerate(tokens_of(losses)):
                value, half = float(means.value[place]), float(means.half_width[place])
                places = {
                    "tokens": tokens,
                    "FLOPs": tokens * found["num_flops"],
                    "seconds": tokens / found["tokens_per_s"],
                }
                rows.append(
                    {"size": size, "model": model, "loss": value, "low": value - half, "high": value + half} | places
                )
    colour = alt.Color("model:N", sort=[*MODELS], title=None, scale=alt.Scale(domain=[*MODELS], range=[*COLOURS[:6]]))
    panels = []
    for name in stored:
        base = alt.Chart(alt.InlineData(values=rows)).transform_filter(f"datum.size == '{name}'")
        loss = alt.Y("loss:Q", title=f"loss, {name} parameters", scale=alt.Scale(zero=False, type="log", nice=False))
        across = []
        for along in ("tokens", "FLOPs", "seconds"):
            x = alt.X(f"{along}:Q", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~s", tickCount=4))
            lines = base.mark_line().encode(x=x, y=loss, color=colour)
            bands = base.mark_area(opacity=0.2).encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q", color=colour)
            across.append((bands + lines).properties(width=230, height=230))
        panels.append(alt.hconcat(*across))
    ground, ink, grid = ("#0d1117", "#d0d7de", "#30363d") if dark else ("white", "#24292f", "#dddddd")
    inked = {"labelColor": ink, "titleColor": ink}
    chart = alt.vconcat(*panels).configure(background=ground, font="sans-serif").configure_view(stroke=grid)
    return chart.configure_axis(**inked, gridColor=grid, domainColor=grid).configure_legend(
        **inked, orient="bottom", symbolOpacity=1
    )


def write(stored: dict[str, Any]) -> None:
    """Puts the tables between the marks in the page, and writes the figure beside the page."""
    at = f"{PAGE.stem}/crossing"
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{at}-dark.svg">'
    lines = ["<!-- crossing -->", "<picture>", dark, f'<img src="{at}.svg" alt="{SEEN}">', "</picture>"]
    for name, models in stored.items():
        lines += ["", f"**{name} parameters**", "", *table(models), "", *overtakings(models)]
    lines.append("<!-- end of crossing -->")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub("<!-- crossing -->.*?<!-- end of crossing -->", lambda _: "\n".join(lines), page, flags=re.DOTALL),
        encoding="utf-8",
    )
    drawing(stored).save(STORED.with_suffix(".svg"))
    drawing(stored, dark=True).save(STORED.with_name("crossing-dark.svg"))


def make(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wikitext", type=Path, help="folder with WikiText-2's train.txt, valid.txt and test.txt")
    parser.add_argument("--only", choices=[size.name for size in SIZES], help="one size")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time")
    options = parser.parse_args(args)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for size in SIZES if options.wikitext else ():
        for model in MODELS if options.only in (None, size.name) else ():
            if model in (models := stored.setdefault(size.name, {})):
                continue
            models[model] = curve(size, model, options.wikitext, options.jobs)
            STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write({name: models for name, models in stored.items() if models.keys() == MODELS.keys()})


if __name__ == "__main__":
    make()
