from __future__ import annotations

import io
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seqlab.callbacks.run_tracker import scored_as
from seqlab.cli import main
from seqlab.comparison import report
from seqlab.comparison.comparison import Comparison, compare
from seqlab.comparison.rows import more_is_better, short
from seqlab.tasks import LanguageModeling
from seqlab.tracking.journal import Journal, now
from seqlab.tracking.store import Store
from seqlab.tracking.writes import SCORED_TAG
from tracking.tiny import make_run

SPEED = 50_000.0
Points = dict[str, list[tuple[int, float]]]


def text(comparison: Comparison, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(comparison.table())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def names(comparison: Comparison) -> list[str]:
    return [run.name for run in comparison.runs]


GRU: Points = {
    "val/loss": [(9, 2.0), (19, 1.5)],
    "val/bits_per_char": [(9, 2.9), (19, 2.2)],
    "val/accuracy": [(19, 0.5)],
    "num_params": [(0, 271360)],
    "state_size": [(0, 256)],
    "num_flops": [(0, 2402304.0)],
    "perf/tokens_per_s": [(9, 1.0), (19, SPEED)],
}
ATTENTION: Points = {
    "val/loss": [(9, 1.25), (19, 3.0)],
    "val/bits_per_char": [(9, 1.8), (19, 4.3)],
    "val/accuracy": [(19, 0.4)],
    "perf/tokens_per_s": [(19, 2 * SPEED)],
    "num_devices": [(0, 4)],
}


@pytest.fixture(scope="module")
def filled(shared: Store) -> Store:
    """Three runs: the second overfits, the third has not been validated."""
    make_run(shared, "gru", GRU)
    make_run(shared, "attention", ATTENTION, status="KILLED")
    make_run(shared, "unborn", {"train/loss": [(3, 1.0)]}, status="FAILED", experiment="others")
    return shared


def test_the_least_is_the_best_and_who_has_no_value_comes_last(filled: Store) -> None:
    attention, gru, unborn = compare(store=filled).rows
    assert [row.run.name for row in (attention, gru, unborn)] == ["attention", "gru", "unborn"]
    assert (attention.value, attention.bits_per_char) == (1.25, 1.8), "of its best validation"
    assert (gru.value, gru.bits_per_char, gru.num_params, gru.state_size) == (1.5, 2.2, 271360, 256)
    assert (gru.num_flops, gru.tokens_per_s) == (2402304, SPEED)
    assert (unborn.value, unborn.num_params, unborn.tokens_per_s) == (None, None, None)


def test_more_is_better_where_the_name_says_so(filled: Store) -> None:
    assert names(compare(store=filled, metric="val/accuracy")) == ["gru", "attention", "unborn"]
    more = ("test/bleu", "val/exact_match", "perf/tokens_per_s", "perf/mfu")
    less = ("val/loss", "val/perplexity", "val/bits_per_char", "lr", "val/loss_per_sequence")
    assert [more_is_better(name) for name in (*more, *less)] == [True] * 4 + [False] * 5


def test_scores_of_other_data_are_told_and_the_last_counts(store: Store) -> None:
    """`seqlab test` writes at the step of the checkpoint, however often."""
    task = of("LanguageModeling", "text 1")
    make_run(store, "a", {"test/loss": [(9, 1.0)], "val/loss": [(9, 1.0)]}, **task)
    journal = Journal(store, make_run(store, "b", {"test/loss": [(9, 3.0)], "val/loss": [(9, 1.0)]}, **task))
    journal.write({"op": "tags", "tags": {"test.data": "other 1, data.seq_len 8"}})
    journal.write({"op": "scores", "points": [("test/loss", 0.5, now(), 9)]})
    comparison = compare(metric="test/loss", store=store)
    assert [row.value for row in comparison.rows] == [0.5, 1.0]
    assert comparison.warnings == ["Evaluated on other data than its own: b on other 1, data.seq_len 8."]
    assert compare(store=store).warnings == []
    journal.write({"op": "scores", "points": [("test/loss", math.nan, now() + 1, 9)]})
    assert [row.value for row in compare(metric="test/loss", store=store).rows] == [1.0, None]


@pytest.mark.parametrize(
    ("metric", "bits", "title"), [("val/loss", 2.0, "bits/"), ("test/loss", 3.0, "bits/"), ("lr", 2.0, "val/")]
)
def test_bits_are_those_of_the_metrics_split(metric: str, bits: float, title: str, store: Store) -> None:
    points = {"val/loss": 1.0, "test/loss": 1.0, "lr": 1.0, "val/bits_per_char": 2.0, "test/bits_per_char": 3.0}
    make_run(store, "a", {name: [(9, value)] for name, value in points.items()})
    comparison = compare(metric=metric, store=store)
    assert comparison.rows[0].bits_per_char == bits
    assert [one.split("\n")[0] for one in comparison.header if one.endswith("bits/\nchar")] == [title]


@pytest.mark.parametrize(("metric", "title"), [("val/loss", ["nats/"]), ("lr", ["val/"]), ("val/loss_per_frame", [])])
def test_models_of_several_labels_have_nats_a_frame_as_papers_print_them(
    metric: str, title: list[str], store: Store
) -> None:
    make_run(store, "a", {name: [(4, 8.0), (9, 7.5)] for name in ("val/loss", "val/loss_per_frame", "lr")})
    comparison = compare(metric=metric, store=store)
    assert comparison.rows[0].nats_per_frame == 7.5
    assert [one.split("\n")[0] for one in comparison.header if one.endswith("nats/\nframe")] == title
    assert not any("bits" in one for one in comparison.header) and ("7.5000" in text(comparison))


def test_the_same_data_read_in_other_pieces_is_told(store: Store) -> None:
    for name, seq_len, share in (("short", "128", "0.05"), ("long", "256", "0.1")):
        task = of("LanguageModeling", "text 1")
        options = {"seq_len": seq_len, "split.0": share, "path": name, "batch_size": seq_len}
        task["params"] |= {f"data.init_args.{option}": value for option, value in options.items()}
        task["params"] |= {"data.train": name, "data.seed": name, "data.split_seed": seq_len}
        make_run(store, name, {"val/loss": [(9, 1.0)]}, **task)
    assert compare(store=store).warnings == [
        "The data are read differently: data.seq_len 128 in short, 256 in long; "
        "data.split.0 0.05 in short, 0.1 in long; data.split_seed 128 in short, 256 in long."
    ]


def of(task: str, data: str, host: str = "one") -> Any:
    """The params and tags of a run of a task on data."""
    tags = {"dataset": data, "host": host, "hardware.cpu": "EPYC", "hardware.gpus": "none"}
    return {"params": {"model.class_path": f"seqlab.tasks.{task}"}, "tags": tags}


def test_a_loss_of_ones_own_ranks_beside_the_task_whose_scores_it_keeps(store: Store) -> None:
    class Smoothed(LanguageModeling):
        def loss(self, batch: Any) -> Any: ...

    class Rescored(LanguageModeling):
        def evaluate(self, batch: Any) -> Any: ...

    for loss, task in enumerate((LanguageModeling, Smoothed, Rescored), start=1):
        kind = of(task.__name__, "pydoc 1")
        kind["tags"][SCORED_TAG] = scored_as(task)
        make_run(store, task.__name__, {"val/loss": [(0, float(loss))]}, **kind)
    comparison = compare(store=store)
    assert names(comparison) == ["LanguageModeling", "Smoothed"]
    assert [names(group) for group in comparison.apart] == [["Rescored"]]
    assert (
        "Trained by different tasks: LanguageModeling by LanguageModeling; Smoothed by Smoothed." in comparison.warnings
    )


def test_runs_are_ranked_within_one_task_and_one_dataset(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, loss, kind in (
        ("classifier", 0.69, of("Classification", "sst2 1")),
        ("gru", 1.4, of("LanguageModeling", "pydoc 1")),
        ("lstm", 1.3, of("LanguageModeling", "pydoc 1")),
        ("another text", 0.9, of("LanguageModeling", "pydoc 2")),
    ):
        make_run(store, name, {"val/loss": [(0, loss)]}, **kind)
    comparison = compare(store=store)
    assert names(comparison) == ["lstm", "gru"]
    assert comparison.title == "LanguageModeling on pydoc 1"
    apart = {names(group)[0]: comparison.reason(group) for group in comparison.apart}
    assert apart == {"classifier": "another task and other data", "another text": "other data"}

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    assert main(["compare"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[0] for line in shown if line[:1].isdigit()] == ["1", "2", "1", "1"]
    assert "Not ranked with these, other data: LanguageModeling on pydoc 2" in shown
    assert main(["compare", "--quiet"]) == 0
    assert len(capsys.readouterr().out.split()) == 4
    assert "Not ranked with these, another task and other data: Classification on sst2 1" in report.page(comparison)


def test_sizes_and_machines_that_differ_are_told(store: Store) -> None:
    speed = {"perf/tokens_per_s": [(0, SPEED)]}
    for name, size, host in (("small", 100_000.0, "one"), ("as large", 105_000.0, "one")):
        points = {"val/loss": [(0, 1.0)], "num_params": [(0, size)], **speed}
        make_run(store, name, points, experiment="fair", **of("LanguageModeling", "pydoc 1", host))
    assert compare(store=store, experiment="fair").warnings == []
    points = {"val/loss": [(0, 1.0)], "num_params": [(0, 106_000.0)], **speed}
    make_run(store, "large", points, **of("LanguageModeling", "pydoc 1", "two"))
    comparison = compare(store=store)
    assert comparison.warnings == [
        "Parameters differ by 6%: 100k in small, 106k in large.",
        "Speeds were measured on different machines: one (EPYC); two (EPYC).",
    ]
    shown = " ".join(text(comparison, 100).split())
    assert all(line in shown for line in comparison.warnings)
    assert all(line in report.page(comparison) for line in comparison.warnings)


def test_runs_are_chosen_by_name_and_by_experiment(filled: Store, tmp_path: Path) -> None:
    store = Store(shutil.copytree(filled.root, tmp_path / "mlruns"))
    ids = {run.name: run.id for run in compare(store=store).runs}
    assert names(compare(["gru", ids["attention"][:12], ids["gru"]], store=store)) == ["attention", "gru"]
    assert names(compare(experiment="others", metric="train/loss", store=store)) == ["unborn"]
    make_run(store, "gru", {"val/loss": [(0, 1.0)]}, experiment="others")
    (other,) = compare(["gru"], experiment="others", store=store).runs
    assert (other.name, other.experiment) == ("gru", "others")
    with pytest.raises(ValueError, match="'attention' in experiment 'others'"):
        compare(["attention"], experiment="others", store=store)


def test_days_and_cost_follow_from_the_measured_speed(filled: Store) -> None:
    attention, gru, unborn = compare(store=filled, tokens=43.2e9, price=2.5).rows
    assert (gru.days, gru.cost) == (10, 600)  # 43.2e9 / 50,000 = 864,000 s; 240 h at 2.5
    assert (attention.days, attention.cost) == (5, 1200)  # 120 h on 4 devices at 2.5
    assert (unborn.days, unborn.cost) == (None, None)
    comparison = compare(store=filled, tokens=43.2e9)
    assert [row.cost for row in comparison.rows] == [None] * 3
    assert not any("cost" in title for title in comparison.header)
    assert any("days" in title for title in comparison.header)


def test_the_table_fits_into_80_columns_and_cuts_nothing(filled: Store) -> None:
    for comparison in (compare(store=filled), compare(store=filled, tokens=100e9, price=2.5)):
        shown = text(comparison)
        assert "…" not in shown
        cells = [cell for run in comparison.runs for cell in (run.id[:8], run.status)]
        assert all(cell in shown for cell in (*cells, "1.2500", "1.8000", "271.4k", "256", "50k"))
    priced = ("days", "100B", "cost", "2.5/h", "2.4M", "11.57", "2,778", "23.15", "1,389")
    assert all(cell in shown for cell in priced)


def test_a_nan_is_not_the_best_and_a_name_is_no_markup(store: Store) -> None:
    make_run(store, "nan", {"val/loss": [(0, math.nan)]})
    make_run(store, "[red]x[/red]", {"val/loss": [(0, math.nan), (1, 3.0)]})
    comparison = compare(store=store)
    assert [(row.run.name, row.value) for row in comparison.rows] == [("[red]x[/red]", 3.0), ("nan", None)]
    assert "[red]x[/red]" in text(comparison, width=120)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": 0.0}, "tokens must be a positive number, got 0"),
        ({"tokens": math.inf}, "tokens must be"),
        ({"tokens": 1.0, "price": -1.0}, "price must be a number of at least 0, got -1"),
        ({"price": 1.0}, "a price needs tokens"),
        ({"metric": "val/los"}, "no run has the metric 'val/los'; there are num_devices, num_flops, num_params"),
        ({"experiment": "nope"}, "no runs to compare in experiment 'nope'; the experiments are Default, others, tests"),
        ({"runs": ["nope"]}, "no run has the id"),
        ({"runs": []}, "no runs to compare"),
    ],
)
def test_what_makes_no_sense_is_refused(filled: Store, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(store=filled, **arguments)


def test_short_numbers() -> None:
    numbers = [None, math.nan, 0, 256, 999.96, 1000, 271360, 999_990, 124_439_808, 1e11, 1.746e11]
    texts = ["-", "-", "0", "256", "1k", "1k", "271.4k", "1M", "124.4M", "100B", "174.6B"]
    assert [short(number) for number in numbers] == texts
