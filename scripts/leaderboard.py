"""Fits the comparison of docs/leaderboard.md, and writes its tables and figures: `make leaderboard`.

Every model has the same number of parameters, its best learning rate in validation, and five seeds with that rate.
After a stop the same command continues, and models whose numbers are stored are not fitted again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from seqlab.cli import main
from seqlab.comparison.rows import more_is_better, short
from seqlab.comparison.seeds import LR
from seqlab.comparison.statistics import Estimate, better, mean, ranks
from seqlab.sweeps.another_seed import another_seed
from seqlab.sweeps.fits import score
from seqlab.sweeps.several import fit_all
from seqlab.tracking.runs import TrackedRun, search
from seqlab.tracking.store import Store

PAGE = Path(__file__).parent.parent / "docs/leaderboard.md"
SEEDS = 5


class Model(NamedTuple):
    mixer: str
    positions: str = "NoPositions"
    d_model: int = 128
    num_layers: int = 2


RECURRENCES = {
    name: Model(name)
    for name in (
        *("NGramWindow", "RNN", "LSTM", "GRU", "MinGRU", "S4D", "LinOSS", "RGLRU", "HGRN2"),
        *("Mamba", "Mamba2", "Mamba3", "LogLinearMamba2", "MLSTM", "RWKV7"),
        *("GatedDeltaNet", "GatedDeltaNet2", "GatedDeltaProduct", "KimiDeltaAttention"),
    )
}
ATTENTION = {f"Attention-{name}": Model("Attention", name) for name in ("NoPositions", "Learned")}
ENCODED = {f"Attention-{name}": Model("Attention", name) for name in ("RoPE", "ALiBi", "T5Bias")} | {
    "Forgetting": Model("{class_path: Attention, parts: [QueryKeyNorm, ForgetGate, OutputGate]}"),
    "PaTH": Model("PaTHAttention"),
    "Gated-RoPE": Model("{class_path: Attention, parts: [OutputGate]}", "RoPE"),
    "MoBA-RoPE": Model("{class_path: Attention, parts: [{class_path: MoBA, block: 8, k: 2}]}", "RoPE"),
    "Sparse-RoPE": Model("{class_path: NativeSparseAttention, block: 8, k: 2, window: 16}", "RoPE"),
}
HYBRIDS = {
    "Kimi-3:1": Model("[KimiDeltaAttention,KimiDeltaAttention,KimiDeltaAttention,Attention]", d_model=96, num_layers=4),
    "Kimi-7:1": Model(f"[{'KimiDeltaAttention,' * 7}Attention]", d_model=64, num_layers=8),
}
SIGNED = {
    f"{name}-signed": Model(f"{{class_path: {name}, negative_eigenvalues: true}}")
    for name in ("GatedDeltaNet", "GatedDeltaNet2", "KimiDeltaAttention")
}
"""Delta rules that can turn a state's sign. GatedDeltaProduct and RWKV7 always can."""


class Track(NamedTuple):
    """Data and options on which the models are compared.

    Attributes:
        fit: arguments of each fit, without its data file.
        rates: learning rates; the grid goes on while the best is at an end.
        mixer: template that puts a mixer into the model.
        seeds: options that a seed sets, without the seed of synthetic data, which draws the examples.
        metric: metric of the test split.
    """

    name: str
    models: Mapping[str, Model]
    config: str
    fit: tuple[str, ...]
    rates: str
    mixer: str = "{}"
    seeds: tuple[str, ...] = ("seed_everything",)
    metric: str = "test/accuracy"

    @property
    def experiment(self) -> str:
        return f"leaderboard-{self.name}"

    @property
    def stored(self) -> Path:
        return PAGE.with_suffix("") / f"{self.name}.json"

    def args(self, model: Model) -> list[str]:
        """Arguments of a model's fits."""
        size = [
            "--match",
            "params",
            "--to",
            "410000",
            "--match_by",
            "ffn.d_ff",
            f"--model.model.d_model={model.d_model}",
        ]
        size += [
            f"--model.model.num_layers={model.num_layers}",
            f"--model.model.mixer={self.mixer.format(model.mixer)}",
        ]
        return [*size, f"--model.model.positions={model.positions}", *self.fit]


TRACKS = (
    Track(
        "shakespeare",
        RECURRENCES | ATTENTION | ENCODED | HYBRIDS,
        "lm/gru",
        ("--data.seq_len=64", "--data.batch_size=16", "--trainer.max_steps=400", "--trainer.val_check_interval=200"),
        "2e-3,4e-3,8e-3,1.6e-2",
        seeds=("seed_everything", "data.seed"),
        metric="test/loss",
    ),
    Track(
        "recall",
        RECURRENCES | ATTENTION | {name: ENCODED[name] for name in ("Forgetting", "PaTH")},
        "synthetic/recall",
        ("--model.model.block.ffn=GELU", "--data.batch_size=64", "--data.num_train=64000"),
        "5e-4,1e-3,2e-3,4e-3",
        "[CausalConv,{}]",
    ),
    Track(
        "parity",
        RECURRENCES | SIGNED | ATTENTION | ENCODED,
        "synthetic/parity",
        (
            *("--data.train_lengths=[1,16]", "--data.test_lengths=[17,48]", "--data.batch_size=64"),
            *("--data.num_train=96000", "--trainer.max_epochs=1", "--trainer.val_check_interval=500"),
        ),
        "1e-3,2e-3,4e-3",
    ),
)


class Fitted(NamedTuple):
    """Fits of one model.

    Attributes:
        runs: those at the best rate, a seed each.
        rates: loss of the first seed at each rate.
    """

    runs: list[TrackedRun]
    rates: dict[str, float]

    @property
    def numbers(self) -> dict[str, Any]:
        """Stored form, without the metric."""
        run = self.runs[0]
        costs = {name: run.metrics[name] for name in ("num_params", "num_flops", "state_size")}
        speed = max(one.metrics["perf/tokens_per_s"] for one in self.runs)
        return {"rates": self.rates, "lr": float(run.params[LR]), **costs, "tokens_per_s": speed}


def fitted(name: str, experiment: str, seeds: int, seeded: Sequence[str], rates: str, jobs: int, *args: str) -> Fitted:
    """Tries a model with each learning rate, and fits the other seeds at the best one.

    Args:
        name: name of the sweep, with which the names of the fits begin.
        seeded: options that a seed sets.
        args: config and arguments of each fit.

    Raises:
        RuntimeError: a fit failed.
    """
    config, *rest = args
    grid = ["--vary", f"model.lr={rates}", "--sampler", "grid", "--extend", "model.lr", "--jobs", str(jobs)]
    seqlab("sweep", "--config", config, *grid, "--name", name, "--experiment", experiment, "--", *rest)
    tried = finished(experiment, rf"{re.escape(name)}-\d+-s0")
    best = min(tried, key=lambda run: score(run, "val/loss"))
    fit_all([another_seed(best, f"{name}-s{seed}", seed, seeded) for seed in range(1, seeds)], experiment, jobs)
    runs = [best, *finished(experiment, rf"{re.escape(name)}-s\d+")]
    if len(runs) < seeds:
        raise RuntimeError(f"{seeds - len(runs)} of {seeds} fits of {name} failed")
    return Fitted(runs, {f"{float(run.params[LR]):g}": score(run, "val/loss") for run in tried})


def finished(experiment: str, name: str) -> list[TrackedRun]:
    """Finished runs whose names match a pattern, in the order of their names."""
    runs = [run for run in search(Store(), experiment=experiment) if re.fullmatch(name, run.name)]
    return sorted((run for run in runs if run.status == "FINISHED"), key=lambda run: run.name)


def seqlab(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "seqlab", *args], check=True)


def measured(track: Track, name: str, jobs: int, *data: str) -> dict[str, Any]:
    """Stored form of a model: fits it, and evaluates its runs on the test split."""
    sweep = f"{track.experiment}-{name.replace(':', '-')}"
    args = (track.config, *track.args(track.models[name]), *data)
    found = fitted(sweep, track.experiment, SEEDS, track.seeds, track.rates, jobs, *args)
    for run in found.runs:
        if track.metric not in run.metrics and main(["test", run.id]) != 0:
            raise RuntimeError(f"the test of {run.name} failed")
    scored = {run.id: run for run in finished(track.experiment, rf"{re.escape(sweep)}-.*")}
    return found.numbers | {"values": [scored[run.id].metrics[track.metric] for run in found.runs]}


def ordered(track: Track, rows: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], tuple[int, int]]]:
    """Names, numbers and rank intervals of the rows, best first."""
    sign = -1 if more_is_better(track.metric) else 1
    names = sorted(rows, key=lambda name: sign * np.mean(rows[name]["values"]))
    found = mean([rows[name]["values"] for name in names])
    return [(name, rows[name], rank) for name, rank in zip(names, ranks(better(_signed(found, sign))), strict=True)]


def _signed(found: Estimate, sign: int) -> Estimate:
    return Estimate(sign * found.value, found.error, found.freedom)


def table(track: Track, rows: Mapping[str, Any]) -> list[str]:
    """Lines of the table in Markdown."""
    head = ["rank", "model", track.metric, "sd", "each seed", "lr", "FLOPs a token", "state", "tokens/s"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, row, (low, high) in ordered(track, rows):
        found = mean(row["values"])
        value, spread = f"{found.value:.4f} ± {found.half_width:.4f}", f"{np.std(row['values'], ddof=1):.4f}"
        each = " ".join(f"{value:.4f}" for value in sorted(row["values"]))
        costs = [short(row[key]) for key in ("num_flops", "state_size", "tokens_per_s")]
        rank = f"{low}" if low == high else f"{low}-{high}"
        lines.append(f"| {' | '.join([rank, name, value, spread, each, rate(row), *costs])} |")
    return lines


def rate(row: Mapping[str, Any]) -> str:
    """Learning rate, with a star at an end of those tried."""
    tried = [float(text) for text in row["rates"]]
    return f"{row['lr']:g}" + ("\\*" if row["lr"] in (min(tried), max(tried)) else "")


def write(track: Track, rows: Mapping[str, Any]) -> None:
    """Puts the table between the marks in the page, and writes the figure beside the page."""
    marks = f"<!-- {track.name} -->", f"<!-- end of {track.name} -->"
    figure = f"![{track.metric} and the state of each model]({PAGE.stem}/{track.name}.svg)"
    text = "\n".join([marks[0], *table(track, rows), "", figure, marks[1]])
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(f"{marks[0]}.*?{marks[1]}", lambda _: text, page, flags=re.DOTALL), encoding="utf-8")
    drawing(track, rows).save(track.stored.with_suffix(".svg"))


def drawing(track: Track, rows: Mapping[str, Any]) -> alt.HConcatChart:
    """Each model's metric with its interval and each seed's number, and beside it the size of its state."""
    shown = []
    for name, row, _ in ordered(track, rows):
        found = mean(row["values"])
        ends = {"low": found.value - found.half_width, "high": found.value + found.half_width}
        state = 4 * row["state_size"]
        shown += [{"model": name, "value": found.value, "seed": seed, "state": state} | ends for seed in row["values"]]
    base = alt.Chart(alt.InlineData(values=shown)).properties(width=260, height=alt.Step(18))
    names = alt.Y("model:N", title=None, sort=None)
    metric = base.mark_point(filled=True, size=50).encode(
        x=alt.X("value:Q", title=track.metric, scale=alt.Scale(zero=False)), y=names
    ) + base.mark_rule().encode(x=alt.X("low:Q", title=track.metric), x2="high:Q", y=names)
    seeds = alt.X("seed:Q", title=track.metric)
    metric += base.mark_point(filled=True, size=10, color="black").encode(x=seeds, y=names)
    of_state = alt.X("state:Q", title="bytes of state, float32", scale=alt.Scale(type="log"))
    state_of = base.mark_point(shape="square", size=50).encode(x=of_state, y=names.axis(labels=False, ticks=False))
    return (metric | state_of).configure(background="white", font="sans-serif")


def make(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shakespeare", type=Path, help="tiny Shakespeare's input.txt; without, that part is left out")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time")
    parser.add_argument("--only", choices=[track.name for track in TRACKS], help="one part")
    options = parser.parse_args(args)
    # Concurrent fits with more threads than cores wait for each other at each step of a loop over time.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    data = {"shakespeare": [f"--data.path={options.shakespeare}"]} if options.shakespeare else {}
    for track in TRACKS:
        if options.only not in (None, track.name) or (track.name == "shakespeare" and not data):
            continue
        rows = json.loads(track.stored.read_text(encoding="utf-8")) if track.stored.exists() else {}
        for name in track.models:
            if name not in rows:
                rows[name] = measured(track, name, options.jobs, *data.get(track.name, ()))
                track.stored.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        if rows.keys() == track.models.keys():
            write(track, rows)


if __name__ == "__main__":
    make()
