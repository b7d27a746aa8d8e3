"""Fits the comparison of docs/leaderboard.md, and writes its tables and figures: `make leaderboard`.

Every mixer has the same number of parameters, its best learning rate in validation, and five seeds with that rate.
After a stop, the same command continues.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import altair as alt

from seqlab.cli import main
from seqlab.comparison.comparison import Comparison, compare
from seqlab.comparison.rows import Row, short
from seqlab.comparison.seeds import LR, by_seed, config_of
from seqlab.sweeps.another_seed import another_seed
from seqlab.sweeps.fits import score
from seqlab.sweeps.several import fit_all
from seqlab.tracking.runs import SWEEP_TAG, TrackedRun, search
from seqlab.tracking.store import Store

MIXERS = (
    *("NGramWindow", "RNN", "LSTM", "GRU", "MinGRU", "S4D", "RGLRU"),
    *("Mamba", "Mamba2", "MLSTM", "RWKV7", "GatedDeltaNet"),
)
SEEDS = range(5)
BUDGET = ["--match", "params", "--to", "410000", "--match_by", "ffn.d_ff", "--model.model.d_model", "128"]
PAGE = Path(__file__).parent.parent / "docs/leaderboard.md"


@dataclass(frozen=True)
class Track:
    """Data and options on which the models are compared.

    Attributes:
        fit: the arguments of each fit.
        rates: the learning rates; the grid goes on while the best is at an end.
        positions: the encodings of attention.
        mixer: the template that puts a mixer into the model.
        seeds: the options that a seed sets, without the seed of synthetic data, which draws the examples.
        metric: the metric of the test split.
    """

    name: str
    fit: list[str]
    rates: str = "2e-3,4e-3,8e-3,1.6e-2"
    positions: tuple[str, ...] = ("NoPositions", "Learned", "RoPE", "ALiBi", "T5Bias")
    mixer: str = "{}"
    seeds: tuple[str, ...] = ("seed_everything", "data.seed")
    metric: str = "test/loss"
    store: Store = field(default_factory=Store)

    @property
    def experiment(self) -> str:
        return f"leaderboard-{self.name}"

    @property
    def runs(self) -> list[TrackedRun]:
        """Finished fits."""
        return finished(self.store, self.experiment)

    def at_an_end(self, run: TrackedRun) -> bool:
        """True if no lower or no higher rate was tried with a run's model, so that a better one may lie beyond."""
        tried = [float(one.params[LR]) for one in self.runs if config_of(one, LR) == config_of(run, LR)]
        return float(run.params[LR]) in (min(tried), max(tried))


TEXT = [
    *("--config", "lm/gru", "--data.seq_len", "64", "--data.batch_size", "16"),
    *("--trainer.max_steps", "400", "--trainer.val_check_interval", "200"),
]
RECALL = [
    *("--config", "synthetic/recall", "--model.model.block.ffn", "GELU"),
    *("--data.batch_size", "64", "--data.num_train", "64000"),
]


def tracks(shakespeare: Path | None) -> Iterator[Track]:
    """Tracks whose data are here."""
    if shakespeare is not None:
        yield Track("shakespeare", [*TEXT, "--data.path", str(shakespeare)])
    yield Track(
        "recall",
        RECALL,
        "5e-4,1e-3,2e-3,4e-3",
        ("NoPositions", "Learned"),
        "[CausalConv,{}]",
        ("seed_everything",),
        "test/accuracy",
    )
    yield Track("python-docs", TEXT)


def sweep(track: Track, jobs: int, name: str, vary: str, *fit: str) -> None:
    """Tries each variant with each learning rate."""
    seqlab(
        *(
            "sweep",
            *track.fit[:2],
            "--vary",
            vary,
            "--vary",
            f"model.lr={track.rates}",
            "--sampler",
            "grid",
            "--extend",
            "model.lr",
        ),
        *("--jobs", str(jobs), "--name", f"{track.experiment}-{name}", "--experiment", track.experiment, "--"),
        *(*BUDGET, *track.fit[2:], *fit),
    )


def fit_seeds(track: Track, jobs: int) -> None:
    """Fits each model at its best learning rate with its missing seeds."""
    wanted = [
        another_seed(run, f"{label(run)}-s{seed}", seed, track.seeds) for run in best(track) for seed in SEEDS[1:]
    ]
    fit_all(wanted, track.experiment, jobs)


def test(track: Track) -> list[str]:
    """Evaluates the runs of all seeds on the test split, and returns their ids."""
    chosen = {config_of(run) for run in best(track)}
    rows = [runs for runs in by_seed(track.runs) if config_of(runs[0]) in chosen and len(runs) == len(SEEDS)]
    ids = [run.id for runs in rows for run in runs]
    for run in (run for runs in rows for run in runs if track.metric not in run.metrics):
        if main(["test", run.id]) != 0:
            raise SystemExit(1)
    return ids


def best(track: Track) -> list[TrackedRun]:
    """Best run of each model, by validation loss, among those with the first seed."""
    models: dict[object, list[TrackedRun]] = {}
    for run in track.runs:
        if run.params["seed_everything"] == str(SEEDS[0]):
            models.setdefault(config_of(run, LR), []).append(run)
    return [min(runs, key=lambda run: score(run, "val/loss")) for runs in models.values()]


def label(run: TrackedRun) -> str:
    """A model's mixer, the last of several, and for attention its positions."""
    model = "model.init_args.model.init_args"
    mixers = [value for name, value in run.params.items() if re.fullmatch(rf"{model}\.mixer(\.\d+)?\.class_path", name)]
    mixer, positions = (path.rpartition(".")[2] for path in (mixers[-1], run.params[f"{model}.positions.class_path"]))
    return f"{mixer}-{positions}" if mixer == "Attention" else mixer


def finished(store: Store, experiment: str) -> list[TrackedRun]:
    """Finished fits of an experiment, without the runs of its sweeps."""
    runs = search(store, experiment=experiment)
    return [run for run in runs if run.status == "FINISHED" and SWEEP_TAG not in run.tags]


def seqlab(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "seqlab", *args], check=True)


def table(track: Track, comparison: Comparison) -> str:
    """The rows in Markdown."""
    head = f"| rank | model | {track.metric} | sd | each seed | lr | FLOPs a token | state | tokens/s |"
    lines = [head, "|" + "---|" * 9]
    for row in comparison.rows:
        value = f"{row.value:.4f} ± {row.half_width:.4f}"
        each = " ".join(f"{value:.4f}" for value in row.values)
        cells = [comparison.rank_of(row), label(row.run), value, f"{row.deviation:.4f}", each, rate(track, row)]
        lines.append("| " + " | ".join([*cells, *map(short, (row.num_flops, row.state_size, row.tokens_per_s))]) + " |")
    return "\n".join(lines)


def rate(track: Track, row: Row) -> str:
    """The learning rate, with a star at an end of those tried."""
    return f"{float(row.run.params[LR]):g}" + ("\\*" if track.at_an_end(row.run) else "")


def write(track: Track, runs: list[str]) -> None:
    """Puts the table between the marks in the page, writes the figure beside the page and shows it below the table."""
    comparison = compare(runs, metric=track.metric)
    marks = f"<!-- {track.name} -->", f"<!-- end of {track.name} -->"
    figure = f"![{track.metric} and the state of each model]({PAGE.stem}/{track.name}.svg)"
    lines = [marks[0], table(track, comparison), "", figure, marks[1]]
    page = PAGE.read_text(encoding="utf-8")
    between = re.compile(re.escape(marks[0]) + ".*?" + re.escape(marks[1]), re.DOTALL)
    PAGE.write_text(between.sub(lambda _: "\n".join(lines), page), encoding="utf-8")
    folder = PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    drawing(track, comparison).save(folder / f"{track.name}.svg")


def drawing(track: Track, comparison: Comparison) -> alt.HConcatChart:
    """Each model's metric with its interval and each seed's number, and beside it the size of its state."""
    shown = [
        {
            "model": label(row.run),
            "value": row.value,
            "low": row.value - row.half_width,
            "high": row.value + row.half_width,
            "seed": seed,
            "state": 4 * row.state_size,
        }
        for row in comparison.rows
        for seed in row.values
    ]
    base = alt.Chart(alt.InlineData(values=shown)).properties(width=260, height=alt.Step(18))
    names = alt.Y("model:N", title=None, sort=None)
    metric = base.mark_point(filled=True, size=50).encode(
        x=alt.X("value:Q", title=track.metric, scale=alt.Scale(zero=False)), y=names
    ) + base.mark_rule().encode(x=alt.X("low:Q", title=track.metric), x2="high:Q", y=names)
    metric += base.mark_point(filled=True, size=10, color="black").encode(
        x=alt.X("seed:Q", title=track.metric), y=names
    )
    state = base.mark_point(shape="square", size=50).encode(
        x=alt.X("state:Q", title="bytes of state, float32", scale=alt.Scale(type="log")),
        y=names.axis(labels=False, ticks=False),
    )
    return (metric | state).configure(background="white", font="sans-serif")


def make() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shakespeare", type=Path, help="tiny Shakespeare's input.txt; without, that part is left out")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time")
    parser.add_argument("--only", help="the name of one part")
    options = parser.parse_args()
    # Concurrent fits with more threads than cores wait for each other at each step of a loop over time.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    for track in tracks(options.shakespeare):
        if options.only in (None, track.name):
            mixers, positions = ",".join(map(track.mixer.format, MIXERS)), ",".join(track.positions)
            sweep(track, options.jobs, "mixers", f"model.model.mixer={mixers}")
            attention = track.mixer.format("Attention")
            sweep(
                track,
                options.jobs,
                "attention",
                f"model.model.positions={positions}",
                f"--model.model.mixer={attention}",
            )
            fit_seeds(track, options.jobs)
            write(track, test(track))


if __name__ == "__main__":
    make()
