"""Comparing runs: a table sorted by a metric, with what a larger fit would take at each run's measured speed. Runs are
ranked within one task and one dataset; those that differ in nothing but their seeds are one row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from seqlab.comparison.fair import OF_BYTES, task_of, tokenizer_of, unfair
from seqlab.comparison.rows import BITS_PER_CHAR, Row, more_is_better, rows_of, short
from seqlab.comparison.seeds import runs_named
from seqlab.comparison.statistics import ranks
from seqlab.tracking.readable import BrokenRun
from seqlab.tracking.runs import PARENT_TAG, SWEEP_TAG, TrackedRun, experiment_names, search_all
from seqlab.tracking.store import Store
from seqlab.tracking.writes import DATASET_TAG, SCORED_TAG

if TYPE_CHECKING:
    from rich.table import Table

TEXT_COLUMNS = ("run", "status", "run id")
OF_TOKENS = ("loss", "perplexity")
STATUS_STYLES = {"FINISHED": "green", "RUNNING": "cyan", "FAILED": "red", "KILLED": "yellow"}


@dataclass(frozen=True)
class Comparison:
    """Runs of one task on one dataset, the best first.

    Attributes:
        rows: a line a run, or a line for the runs that differ in nothing but their seeds.
        metric: what they are sorted by.
        tokens: that `days` and `cost` are for, or None.
        price: of one device for an hour, or None.
        apart: comparisons of the runs of other tasks and datasets.
        searched: the runs that these were chosen from.
        unreadable: the runs that would be among these, but for a defect.
    """

    rows: list[Row]
    metric: str
    tokens: float | None = None
    price: float | None = None
    apart: tuple[Comparison, ...] = ()
    searched: tuple[TrackedRun, ...] = ()
    unreadable: tuple[BrokenRun, ...] = ()

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
        """True if a row has an interval, of its seeds or of its test examples."""
        return self.several_seeds or any(row.of_examples is not None for row in self.rows)

    @property
    def has_unfinished(self) -> bool:
        """True if a row's run has a status other than FINISHED; else the table has no column for it."""
        return any(row.run.status != "FINISHED" for row in self.rows)

    @cached_property
    def ranks(self) -> list[int]:
        """Rank of each row; rows whose 95% intervals overlap share one, and a row without the metric has its place."""
        sign = -1 if more_is_better(self.metric) else 1
        known = [(sign * row.value, row.half_width) for row in self.rows if row.value is not None]
        found = ranks([(value - half_width, value + half_width) for value, half_width in known])
        return found + list(range(len(known) + 1, len(self.rows) + 1))

    @property
    def title(self) -> str:
        """The task and the data; empty where the runs do not say."""
        return " on ".join(text for text in kind_of(self.runs[0]) if text)

    def reason(self, other: Comparison) -> str:
        """Reason why another comparison's runs are not ranked with these."""
        differ = [ours != theirs for ours, theirs in zip(kind_of(self.runs[0]), kind_of(other.runs[0]), strict=True)]
        texts = ("another task", "other data")
        return " and ".join(text for text, differs in zip(texts, differ, strict=True) if differs)

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings of what may make the difference besides the models."""
        found = unfair(self.rows, self.metric, self.searched or self.runs)
        if self.apart:
            texts = (f"{len(other.rows)} of {self.reason(other)}" for other in self.apart)
            found.append(f"Not ranked with these, but below: {', '.join(texts)}.")
        found += [f"Left out, as it cannot be read: {run}." for run in self.unreadable]
        return found

    @property
    def header(self) -> list[str]:
        """The titles of the columns, with units and line breaks: all columns fit into 80 characters."""
        return [title for title, _ in self._columns]

    def cells(self, row: Row) -> list[str]:
        """A row's texts, by `header`."""
        return [text(row) for _, text in self._columns]

    def _value(self, row: Row) -> str:
        return "not finite" if row.value is None and self.metric in row.run.metrics else _fixed(row.value)

    @cached_property
    def _columns(self) -> list[tuple[str, Callable[[Row], str]]]:
        columns: list[tuple[bool, str, Callable[[Row], str]]] = [
            (True, "#", lambda row: str(self.ranks[self.rows.index(row)])),
            (True, "run", lambda row: row.name),
            (True, self.metric.replace("/", "/\n").replace("_per_", "\n_per_"), self._value),
            (self.several_seeds, "sd", lambda row: _fixed(row.deviation) if row.spread else ""),
            (self.has_intervals, "±\n95%", lambda row: _fixed(row.half_width) if row.spread or row.of_examples else ""),
            (self.several_seeds, "n", lambda row: str(len(row.runs))),
            (self.metric != BITS_PER_CHAR, "bits/\nchar", lambda row: _fixed(row.bits_per_char)),
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

    def table(self) -> Table:
        """The comparison for a terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        table.title, table.title_justify = Text("\n".join(self.warnings)) if self.warnings else None, "left"
        widths = [max(map(len, column)) for column in zip(*map(self.cells, self.rows), strict=True)]
        for title, width in zip(self.header, widths, strict=True):
            if title == "run":
                table.add_column(title, overflow="fold")
            else:
                least = max(width, *map(len, title.split("\n")))
                table.add_column(
                    Text(title), justify="left" if title in TEXT_COLUMNS else "right", min_width=least, no_wrap=True
                )
        for row in self.rows:
            cells = [Text(cell) for cell in self.cells(row)]
            if self.has_unfinished:
                cells[-2].stylize(STATUS_STYLES.get(row.run.status, ""))
            table.add_row(*cells, style="bold" if cells[0].plain == "1" else None)
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
    """Compares runs by a metric: the least is the best, unless its name says otherwise (accuracy, BLEU, speed).

    Runs of several tasks or datasets are several comparisons: the one of the most runs that have the metric, and the
    others in its `apart`.

    Args:
        runs: what `find_run` takes, a sweep standing for its fits; None = all.
        experiment: only runs of this experiment.
        metric: a logged metric.
        tokens: adds the days that training on so many would take.
        price: of one device for an hour; adds what those days would cost.
        store: where the runs are.

    Raises:
        ValueError: there is no such run or experiment, no run has the metric, or a number makes no sense.
    """
    if tokens is not None and not (tokens > 0 and math.isfinite(tokens)):
        raise ValueError(f"tokens must be a positive number, got {tokens:g}")
    if price is not None and not (price >= 0 and math.isfinite(price)):
        raise ValueError(f"price must be a number of at least 0, got {price:g}")
    if price is not None and tokens is None:
        raise ValueError("a price needs tokens: the cost is that of training on so many")
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
    groups = [replace(_comparison(group, metric, tokens, price), searched=searched) for group in kinds.values()]
    sign = -1 if more_is_better(metric) else 1
    groups.sort(key=lambda group: _places(group, sign))
    return replace(groups[0], apart=tuple(groups[1:]), unreadable=unreadable)


def _fits(run: TrackedRun, runs: list[TrackedRun]) -> list[TrackedRun]:
    """Runs below a sweep's run, else the run itself."""
    return [one for one in runs if one.tags.get(PARENT_TAG) == run.id] if SWEEP_TAG in run.tags else [run]


def _comparison(runs: list[TrackedRun], metric: str, tokens: float | None, price: float | None) -> Comparison:
    """Comparison of runs of one kind; per byte where the metric is per token, and tokens differ between the runs."""
    split, _, name = metric.rpartition("/")
    by_bytes = f"{split}/{OF_BYTES}"
    tokenizers = {tokenizer_of(run) for run in runs} - {""}
    if name in OF_TOKENS and len(tokenizers) > 1 and any(by_bytes in run.metrics for run in runs):
        metric = by_bytes
    return Comparison(rows_of(runs, metric, tokens, price), metric, tokens, price)


def _places(comparison: Comparison, sign: int) -> tuple[int, float]:
    """Sort key: the most runs with the metric first, then the best of them."""
    values = [row.value for row in comparison.rows for _ in row.runs if row.value is not None]
    return -len(values), sign * values[0] if values else 0


def kind_of(run: TrackedRun) -> tuple[str, str]:
    """The task that a run is scored as, and the data with its digest."""
    return run.tags.get(SCORED_TAG, task_of(run)), run.tags.get(DATASET_TAG, "")


def _fixed(value: float | None) -> str:
    return f"{value:.4f}" if value is not None and abs(value) < 1000 else short(value)


def _about(value: float | None) -> str:
    """A number in two digits."""
    return short(None if value is None else float(f"{value:.2g}"))


def _rounded(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
