"""Comparing runs: a table sorted by a metric, with what a larger fit would take at each run's measured speed. Runs are
ranked within one task and one dataset."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from seqlab.tracking.runs import TrackedRun, experiment_names, find_run, search, settle
from seqlab.tracking.store import Store

if TYPE_CHECKING:
    from rich.table import Table

MORE_IS_BETTER = re.compile(r"acc|bleu|chrf|exact|f1|per_s|precision|recall")
BITS_PER_CHAR = "val/bits_per_char"
SECONDS_A_DAY = 86400
ALIKE = 1.05
"""Times as many parameters as which models count as equally large."""
TEXT_COLUMNS = ("run", "status", "run id")
STATUS_STYLES = {"FINISHED": "green", "RUNNING": "cyan", "FAILED": "red", "KILLED": "yellow"}


@dataclass(frozen=True)
class Row:
    """A run's line in a comparison; None where the run does not say.

    Attributes:
        run: the run.
        value: of the metric that is compared. A validation metric's best, as the best checkpoint has it, or else the
            last.
        bits_per_char: in validation, at the same step.
        num_params: parameters.
        state_size: numbers that decoding must remember of one sequence, at the training length.
        tokens_per_s: measured speed of training, of all devices together.
        days: to train on the asked number of tokens at that speed.
        cost: of those days, for all devices.
    """

    run: TrackedRun
    value: float | None
    bits_per_char: float | None
    num_params: int | None
    state_size: int | None
    tokens_per_s: float | None
    days: float | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Runs of one task on one dataset, the best first.

    Attributes:
        rows: a line a run.
        metric: what they are sorted by.
        tokens: that `days` and `cost` are for, or None.
        price: of one device for an hour, or None.
        apart: comparisons of the runs of other tasks and datasets.
    """

    rows: list[Row]
    metric: str
    tokens: float | None = None
    price: float | None = None
    apart: tuple[Comparison, ...] = ()

    @property
    def runs(self) -> list[TrackedRun]:
        return [row.run for row in self.rows]

    @property
    def title(self) -> str:
        """The task and the data; empty where the runs do not say."""
        return " on ".join(text for text in _kind(self.runs[0]) if text)

    def reason(self, other: Comparison) -> str:
        """Why another one's runs are not ranked with these."""
        differ = [ours != theirs for ours, theirs in zip(_kind(self.runs[0]), _kind(other.runs[0]), strict=True)]
        texts = ("another task", "other data")
        return " and ".join(text for text, differs in zip(texts, differ, strict=True) if differs)

    @property
    def warnings(self) -> list[str]:
        """What else than the models may make the difference."""
        found = []
        sizes = sorted((row.num_params, row.run.name) for row in self.rows if row.num_params)
        if sizes and sizes[-1][0] > ALIKE * sizes[0][0]:
            (least, smallest), (most, largest) = sizes[0], sizes[-1]
            share = f"{most / least - 1:.0%}"
            found.append(f"Parameters differ by {share}: {short(least)} in {smallest}, {short(most)} in {largest}.")
        machines = sorted({_machine(row.run) for row in self.rows if row.tokens_per_s is not None} - {""})
        if len(machines) > 1:
            found.append(f"Speeds are of different machines: {'; '.join(machines)}.")
        return found

    @cached_property
    def header(self) -> list[str]:
        """The titles of the columns, with units and line breaks: all columns fit into 80 characters."""
        titles = ["#", "run", self.metric.replace("/", "/\n")]
        titles += ["bits/\nchar"] if self.metric != BITS_PER_CHAR else []
        titles += ["params", "state", "tokens\n/s"]
        if self.tokens is not None:
            titles.append(f"days for\n{short(self.tokens)}\ntokens")
        if self.price is not None:
            titles.append(f"cost at\n{self.price:g}/h")
        return [*titles, "status", "run id"]

    def cells(self, row: Row) -> list[str]:
        """A row's texts, by `header`."""
        texts = [str(self.rows.index(row) + 1), row.run.name, _fixed(row.value)]
        texts += [_fixed(row.bits_per_char)] if self.metric != BITS_PER_CHAR else []
        texts += [short(row.num_params), short(row.state_size), short(row.tokens_per_s)]
        texts += [_rounded(row.days)] if self.tokens is not None else []
        texts += [_rounded(row.cost)] if self.price is not None else []
        return [*texts, row.run.status, row.run.id[:8]]

    def table(self) -> Table:
        """The comparison for a terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        gap = 1 if self.price is None else 0
        table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
        table.caption, table.caption_justify = Text("\n".join(self.warnings)) if self.warnings else None, "left"
        widths = [max(map(len, column)) for column in zip(*map(self.cells, self.rows), strict=True)]
        for title, width in zip(self.header, widths, strict=True):
            if title == "run":
                table.add_column(title, overflow="fold")
            else:
                least = max(width, *map(len, title.split("\n")))
                table.add_column(Text(title), justify="left" if title in TEXT_COLUMNS else "right", min_width=least)
        for row in self.rows:
            cells = [Text(cell) for cell in self.cells(row)]
            cells[-2].stylize(STATUS_STYLES.get(row.run.status, ""))
            table.add_row(*cells, style="bold" if row is self.rows[0] else None)
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
        runs: what `find_run` takes; None = all.
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
    settle(store)
    if runs is None:
        found = search(store, experiment=experiment)
    else:
        found = list({run.id: run for run in (find_run(text, store) for text in runs)}.values())
        found = [run for run in found if experiment in (None, run.experiment)]
    if not found:
        place = f"experiment {experiment!r}" if experiment else store.uri
        names = ", ".join(sorted(experiment_names(store).values()))
        raise ValueError(f"no runs to compare in {place}; the experiments are {names}")
    logged = sorted({name for run in found for name in run.metrics})
    if metric not in logged:
        raise ValueError(f"no run has the metric {metric!r}; there are {', '.join(logged) or 'none'}")
    sign = -1 if more_is_better(metric) else 1
    rows = [_row(run, metric, sign, tokens, price) for run in found]
    rows.sort(key=lambda row: (row.value is None, 0 if row.value is None else sign * row.value))
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault(_kind(row.run), []).append(row)
    groups = sorted(kinds.values(), key=lambda group: -sum(row.value is not None for row in group))
    apart = tuple(Comparison(group, metric, tokens, price) for group in groups[1:])
    return Comparison(groups[0], metric, tokens, price, apart)


def more_is_better(metric: str) -> bool:
    """Whether a larger value of the metric is better, by its name."""
    return MORE_IS_BETTER.search(metric.lower()) is not None


def short(number: float | None) -> str:
    """A number in about four characters: 271360 is 271.4k."""
    if number is None or not math.isfinite(number):
        return "-"
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.99995 * size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def _row(run: TrackedRun, metric: str, sign: int, tokens: float | None, price: float | None) -> Row:
    step, value = _value(run, metric, sign)
    bits = dict(run.history(BITS_PER_CHAR)) if BITS_PER_CHAR in run.metrics else {}
    speed = run.metrics.get("perf/tokens_per_s")
    days = tokens / speed / SECONDS_A_DAY if tokens and speed else None
    devices = run.metrics.get("num_devices", 1)
    return Row(
        run,
        value,
        bits.get(step, run.metrics.get(BITS_PER_CHAR)),
        _count(run, "num_params"),
        _count(run, "state_size"),
        speed,
        days,
        days * 24 * price * devices if days is not None and price is not None else None,
    )


def _kind(run: TrackedRun) -> tuple[str, str]:
    """The task, and the data with its digest."""
    return run.params.get("model.class_path", "").rpartition(".")[2], run.tags.get("dataset", "")


def _machine(run: TrackedRun) -> str:
    names = ("hardware.cpu", "hardware.gpus") if run.tags.get("hardware.gpus", "none") != "none" else ("hardware.cpu",)
    hardware = ", ".join(run.tags[name] for name in names if name in run.tags)
    return f"{run.tags['host']} ({hardware})" if "host" in run.tags else hardware


def _value(run: TrackedRun, metric: str, sign: int) -> tuple[int, float | None]:
    """The step and the value to compare a run by; of a validation metric the best."""
    points = (
        [(step, value) for step, value in run.history(metric) if math.isfinite(value)] if metric in run.metrics else []
    )
    if not points:
        return -1, None
    return min(points, key=lambda point: sign * point[1]) if metric.startswith("val/") else points[-1]


def _count(run: TrackedRun, metric: str) -> int | None:
    return int(run.metrics[metric]) if metric in run.metrics else None


def _fixed(value: float | None) -> str:
    return f"{value:.4f}" if value is not None and abs(value) < 1000 else short(value)


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
