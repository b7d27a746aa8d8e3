"""Comparison of runs: a table sorted by a metric, with the projected time and cost of a larger fit at measured speed.
Runs are ranked within one task and one dataset. Runs that differ only in their seeds share a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seqlab.comparison.fair import OF_BYTES, kind_of, tokenizer_of, unfair
from seqlab.comparison.rows import BITS, NATS_PER_FRAME, Row, beside, more_is_better, rows_of, short
from seqlab.comparison.seeds import runs_named
from seqlab.comparison.statistics import Estimate, better, letters, ranks
from seqlab.tracking.readable import BrokenRun, experiment_names
from seqlab.tracking.runs import PARENT_TAG, SWEEP_TAG, TrackedRun, search_all
from seqlab.tracking.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

TEXT_COLUMNS = ("run", "status", "run id")
OF_TOKENS = ("loss", "perplexity")
STATUS_STYLES = {"FINISHED": "green", "RUNNING": "cyan", "FAILED": "red", "KILLED": "yellow"}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of one task on one dataset, best first.

    Attributes:
        rows: one row per run, or per group of runs that differ only in their seeds.
        metric: metric by which the rows are sorted.
        tokens: training tokens for the columns `days` and `cost`; None = no such columns.
        price: price of one device per hour; None = no cost.
        apart: comparisons of the runs of other tasks and datasets.
        searched: runs from which these were chosen, of their experiments.
        unreadable: runs left out because they cannot be read.
        decided: pairs of rows told apart by a sequential comparison, instead of one at the end; None = not sequential.
    """

    rows: list[Row]
    metric: str
    tokens: float | None = None
    price: float | None = None
    apart: tuple[Comparison, ...] = ()
    searched: tuple[TrackedRun, ...] = ()
    unreadable: tuple[BrokenRun, ...] = ()
    decided: NDArray[np.bool_] | None = None

    @property
    def runs(self) -> list[TrackedRun]:
        """All runs, row by row."""
        return [run for row in self.rows for run in row.runs]

    @property
    def several_seeds(self) -> bool:
        """True if a row has several seeds."""
        return any(row.spread is not None for row in self.rows)

    @property
    def has_intervals(self) -> bool:
        """True if a row has an interval, over seeds or over test examples."""
        return self.several_seeds or any(row.of_examples is not None for row in self.rows)

    @property
    def has_unfinished(self) -> bool:
        """True if a row's run has a status other than FINISHED; only then the table has a status column."""
        return any(row.run.status != "FINISHED" for row in self.rows)

    @cached_property
    def told_apart(self) -> NDArray[np.bool_]:
        """Pairs of rows with the metric of which the first is certainly better: `decided`, or `statistics.better`."""
        if self.decided is not None:
            return self.decided
        sign = -1 if more_is_better(self.metric) else 1
        rows = [row for row in self.rows if row.value is not None]
        known = [(sign * (row.value or 0), row.estimate) for row in rows]
        parts = [(value, found.error, found.freedom) if found else (value, np.nan, 1) for value, found in known]
        return better(Estimate(*np.array(parts, dtype=float).reshape(-1, 3).T))

    @cached_property
    def ranks(self) -> list[tuple[int, int]]:
        """Rank interval of each row, or its place if no row has an uncertainty. Rows without the metric come last."""
        found = ranks(self.told_apart) if self.has_intervals else []
        return found + [(place, place) for place in range(len(found) + 1, len(self.rows) + 1)]

    @cached_property
    def letters(self) -> list[str]:
        """Letters of each row, of which two that are not told apart share one; empty without intervals, or where the
        alphabet is too short."""
        found = letters(self.told_apart) if self.has_intervals else []
        return found and found + [""] * (len(self.rows) - len(found))

    def rank_of(self, row: Row) -> str:
        """Rank interval of a row, as in 2-4."""
        return self._ranks[id(row)]

    @cached_property
    def _ranks(self) -> dict[int, str]:
        shown = (f"{low}" if low == high else f"{low}-{high}" for low, high in self.ranks)
        return {id(row): rank for row, rank in zip(self.rows, shown, strict=True)}

    @property
    def title(self) -> str:
        """Task and data of the runs; empty if unknown."""
        return " on ".join(text for text in kind_of(self.runs[0]) if text)

    def reason(self, other: Comparison) -> str:
        """Reason why another comparison's runs are not ranked with these."""
        differ = [ours != theirs for ours, theirs in zip(kind_of(self.runs[0]), kind_of(other.runs[0]), strict=True)]
        texts = ("another task", "other data")
        return " and ".join(text for text, differs in zip(texts, differ, strict=True) if differs)

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about factors other than the models that may explain differences."""
        found = unfair(self.rows, self.metric, self.searched or self.runs)
        if self.apart:
            texts = (f"{len(other.rows)} of {self.reason(other)}" for other in self.apart)
            found.append(f"Not ranked with these, but below: {', '.join(texts)}.")
        found += [f"Left out because it cannot be read: {run}." for run in self.unreadable]
        return found

    @property
    def header(self) -> list[str]:
        """Column titles with units and line breaks, so that all columns fit into 80 characters."""
        return [title for title, _ in self._columns]

    def cells(self, row: Row) -> list[str]:
        """Cell texts of a row, in the order of `header`."""
        return [text(row) for _, text in self._columns]

    def _value(self, row: Row) -> str:
        return "not finite" if row.value is None and self.metric in row.run.metrics else _fixed(row.value)

    @cached_property
    def _columns(self) -> list[tuple[str, Callable[[Row], str]]]:
        split = "" if self.metric.startswith(("val/", "test/")) else "val/\n"
        has_frames = any(row.nats_per_frame is not None for row in self.rows)
        columns: list[tuple[bool, str, Callable[[Row], str]]] = [
            (True, "#", self.rank_of),
            (True, "run", lambda row: row.name),
            (True, self.metric.replace("/", "/\n").replace("_per_", "\n_per_"), self._value),
            (self.several_seeds, "sd", lambda row: _fixed(row.deviation) if row.spread else ""),
            (self.has_intervals, "±\n95%", lambda row: _fixed(row.half_width) if row.spread or row.of_examples else ""),
            (self.several_seeds, "n", lambda row: str(len(row.runs))),
            (
                self.metric != beside(self.metric, BITS) and not has_frames,
                f"{split}bits/\nchar",
                lambda row: _fixed(row.bits_per_char),
            ),
            (
                self.metric != beside(self.metric, NATS_PER_FRAME) and has_frames,
                f"{split}nats/\nframe",
                lambda row: _fixed(row.nats_per_frame),
            ),
            (True, "params", lambda row: short(row.num_params)),
            (True, "FLOPs\n/tok", lambda row: _about(row.num_flops)),
            (True, "state", lambda row: short(row.state_size)),
            (True, "tok\n/s", lambda row: short(row.tokens_per_s)),
            (self.tokens is not None, f"days\nfor\n{short(self.tokens)}\ntokens", lambda row: _rounded(row.days)),
            (self.price is not None, f"cost\nat\n{self.price or 0:g}/h", lambda row: _rounded(row.cost)),
            (self.has_unfinished, "status", lambda row: row.run.status),
            (True, "run id", lambda row: row.run.id[:8]),
        ]
        return [(title, text) for wanted, title, text in columns if wanted]

    def frame(self) -> pd.DataFrame:
        """Numbers of the rows as a table of pandas, in the same order. `interval` is half of the 95% interval."""
        import pandas as pd

        return pd.DataFrame(
            {
                "run": row.name,
                "rank_low": low,
                "rank_high": high,
                self.metric: row.value,
                "interval": row.half_width if row.estimate else None,
                "seeds": len(row.runs),
                "params": row.num_params,
                "flops_per_token": row.num_flops,
                "state": row.state_size,
                "tokens_per_s": row.tokens_per_s,
                "run_id": row.run.id,
            }
            for row, (low, high) in zip(self.rows, self.ranks, strict=True)
        )

    def __repr__(self) -> str:
        return str(self.frame().to_string(index=False))

    def _repr_html_(self) -> str:
        """Table and learning curves in a notebook."""
        from seqlab.comparison.curves import in_notebook

        return in_notebook(self)

    def table(self) -> Table:
        """Table of the comparison for a terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        table.title, table.title_justify = Text("\n".join(self.warnings)) if self.warnings else None, "left"
        lines = [self.cells(row) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for title, width in zip(self.header, widths, strict=True):
            if title == "run":
                table.add_column(title, overflow="fold")
            else:
                least = max(width, *map(len, title.split("\n")))
                table.add_column(
                    Text(title), justify="left" if title in TEXT_COLUMNS else "right", min_width=least, no_wrap=True
                )
        for row, line, (rank, _) in zip(self.rows, lines, self.ranks, strict=True):
            cells = [Text(cell) for cell in line]
            if self.has_unfinished:
                cells[-2].stylize(STATUS_STYLES.get(row.run.status, ""))
            table.add_row(*cells, style="bold" if rank == 1 else None)
        return table


def compare(
    runs: list[str] | None = None,
    *,
    experiment: str | None = None,
    metric: str = "val/loss",
    tokens: float | None = None,
    price: float | None = None,
    store: Store | None = None,
) -> Comparison:
    """Compares runs by a metric. Lower is better, unless the metric's name implies otherwise (accuracy, BLEU, speed).

    Runs of several tasks or datasets give several comparisons: the one with the most runs that have the metric is
    returned, with the others in its `apart`.

    Args:
        runs: ids, names or checkpoints as for `find_run`; a sweep includes all its fits; None = all runs.
        experiment: experiment to search; None = all.
        metric: name of a logged metric.
        tokens: number of tokens for which the training time in days is estimated; None = no estimate.
        price: price of one device per hour, for the cost of those days; None = no cost.
        store: store of the runs; None = the default store.

    Raises:
        ValueError: a run or the experiment does not exist, no run has the metric, or a number is out of range.
    """
    if tokens is not None and not (tokens > 0 and math.isfinite(tokens)):
        raise ValueError(f"tokens must be a positive number, got {tokens:g}")
    if price is not None and not (price >= 0 and math.isfinite(price)):
        raise ValueError(f"price must be a number of at least 0, got {price:g}")
    if price is not None and tokens is None:
        raise ValueError("a price needs tokens: the cost is that of training on them")
    store = store or Store()
    store.check_exists()
    readable, broken = search_all(store, experiment=experiment)
    found = [run for run in readable if SWEEP_TAG not in run.tags]
    searched, unreadable = tuple(found), tuple(broken if runs is None else ())
    if runs is not None:
        named = [one for text in runs for one in runs_named(text, found, store, experiment)]
        found = [*{run.id: run for one in named for run in _fits(one, found)}.values()]
    if not found:
        place = f"experiment {experiment!r}" if experiment else store.uri
        names = ", ".join(sorted(experiment_names(store).values()))
        left_out = "".join(f"; one cannot be read: {run}" for run in unreadable)
        raise ValueError(f"no runs to compare in {place}; the experiments are {names}{left_out}")
    logged = sorted({name for run in found for name in run.metrics})
    if metric not in logged:
        raise ValueError(f"no run has the metric {metric!r}; there are {', '.join(logged) or 'none'}")
    kinds: dict[tuple[str, str], list[TrackedRun]] = {}
    for run in found:
        kinds.setdefault(kind_of(run), []).append(run)
    experiments = {run.experiment for run in found}
    near = tuple(run for run in searched if run.experiment in experiments)
    groups = [replace(_comparison(group, metric, tokens, price), searched=near) for group in kinds.values()]
    sign = -1 if more_is_better(metric) else 1
    groups.sort(key=lambda group: _places(group, sign))
    return replace(groups[0], apart=tuple(groups[1:]), unreadable=unreadable)


def _fits(run: TrackedRun, runs: list[TrackedRun]) -> list[TrackedRun]:
    """Fits of a sweep's run; for another run, the run itself."""
    return [one for one in runs if one.tags.get(PARENT_TAG) == run.id] if SWEEP_TAG in run.tags else [run]


def _comparison(runs: list[TrackedRun], metric: str, tokens: float | None, price: float | None) -> Comparison:
    """Compares runs of one kind. A per-token metric is replaced by bits per byte if tokenizers differ."""
    split, _, name = metric.rpartition("/")
    by_bytes = f"{split}/{OF_BYTES}"
    tokenizers = {tokenizer_of(run) for run in runs} - {""}
    if name in OF_TOKENS and len(tokenizers) > 1 and any(by_bytes in run.metrics for run in runs):
        metric = by_bytes
    return Comparison(rows_of(runs, metric, tokens, price), metric, tokens, price)


def _places(comparison: Comparison, sign: int) -> tuple[int, float]:
    """Sort key: comparisons with the most runs that have the metric first, then by best value."""
    values = [row.value for row in comparison.rows for _ in row.runs if row.value is not None]
    return -len(values), sign * values[0] if values else 0


def _fixed(value: float | None) -> str:
    return f"{value:.4f}" if value is not None and abs(value) < 1000 else short(value)


def _about(value: float | None) -> str:
    """A number with two significant digits."""
    return short(None if value is None else float(f"{value:.2g}"))


def _rounded(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
