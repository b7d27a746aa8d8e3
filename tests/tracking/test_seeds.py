"""Runs that differ in nothing but their seeds are one row, with an interval, which other examples widen."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seqlab.cli import main
from seqlab.comparison import report
from seqlab.comparison.comparison import Comparison, compare
from seqlab.comparison.costs import quality_against_costs
from seqlab.comparison.curves import learning_curves
from seqlab.comparison.examples import kept_predictions
from seqlab.comparison.seeds import by_seed, runs_named, shared_name
from seqlab.tracking.journal import Journal, now
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store
from tracking.test_comparison import of, text
from tracking.tiny import make_run

TASK = "seqlab.tasks.LanguageModeling"


def make(
    store: Store,
    name: str,
    loss: float,
    seed: int,
    mixer: str = "GRU",
    status: str = "FINISHED",
    data: str = "text 1",
    **params: str,
) -> str:
    points = {"val/loss": [(0, 2 * loss), (9, loss)], "num_tokens": [(9, 1000.0)], "perf/tokens_per_s": [(9, 5121.0)]}
    points |= {"val/bits_per_byte": [(9, 10 - loss)], "val/bits_per_char": [(9, loss)]}
    points |= {"num_params": [(0, 410512.0)], "state_size": [(0, 65540.0)]}
    options = {"model.class_path": TASK, "model.init_args.mixer": mixer, "model.init_args.lr": "0.001"} | params
    run_specific = {"run_name": name, "seed_everything": str(seed)}
    return make_run(store, name, points, status=status, params=options | run_specific, tags={"dataset": data})


def rows(comparison: Comparison) -> list[tuple[tuple[int, int], str, int]]:
    return [(rank, row.name, len(row.runs)) for rank, row in zip(comparison.ranks, comparison.rows, strict=True)]


@pytest.fixture(scope="module")
def three_models(shared: Store) -> Store:
    """A and B overlap, C is worse."""
    for mixer, losses in {"GRU": (1.0, 1.1, 1.2), "LSTM": (1.15, 1.25, 1.05), "RNN": (2.0, 2.1, 2.05)}.items():
        for seed, loss in enumerate(losses):
            make(shared, f"{mixer.lower()}-s{seed}", loss, seed, mixer)
    return shared


def test_seeds_are_a_row_with_students_interval_and_a_rank_as_far_as_it_is_known(three_models: Store) -> None:
    comparison = compare(store=three_models)
    assert rows(comparison) == [((1, 2), "gru", 3), ((1, 2), "lstm", 3), ((3, 3), "rnn", 3)]
    gru = comparison.rows[0]
    losses = [1.0, 1.1, 1.2]
    assert [gru.value, gru.deviation] == pytest.approx([1.1, 0.1])
    assert gru.values == (1.0, 1.1, 1.2)
    assert gru.half_width == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(losses))
    assert gru.run.name == "gru-s0", "the best"
    shown, page = text(comparison), report.page(comparison)
    assert all(row.run.id[:8] in shown for row in comparison.rows), "in 80 columns"
    assert re.search(r"^1-2 gru +1\.1000 +0\.1000 +0\.2484 +3 ", shown, flags=re.MULTILINE)
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["1-2", "1-2", "3"]
    for words in (
        "0.2484",
        "9 runs by val/loss",
        "the band spans the minimum to the maximum",
        "1-2 <sup>a</sup>",
        "3 <sup>b</sup>",
    ):
        assert words in page
    figures = quality_against_costs(comparison)
    assert len(figures) > 2
    for figure in figures:  # a circle for each seed
        assert len(re.findall("<use [^>]*fill: #ffffff", figure)) == 9
    band = learning_curves(comparison) or ""
    assert band.count('id="FillBetweenPolyCollection') == 3 and len(set(re.findall(r"stroke-dasharray: \S+", band))) > 1


def test_more_is_better_ranks_the_other_way(three_models: Store) -> None:
    comparison = compare(store=three_models, metric="val/bits_per_byte")
    assert [rank for rank, _, _ in rows(comparison)] == [(1, 1), (2, 3), (2, 3)]
    assert rows(comparison)[0][1] == "rnn"


def test_the_same_fit_twice_tells_nothing_of_seeds(store: Store) -> None:
    for name, seed, status in (("a-0", 0, "FINISHED"), ("again", 0, "FINISHED"), ("a-1", 1, "FINISHED")):
        make(store, name, 1.0 + seed, seed, status=status)
    make(store, "a-2", 9.0, 2, status="FAILED")
    make(store, "killed", 9.0, 1, status="KILLED")
    assert sorted(len(row.runs) for row in compare(store=store).rows) == [1, 1, 1, 2]
    told = [text for text in compare(store=store).warnings if "Not among" in text]
    assert told == [
        "Not among the seeds of a-0: killed (KILLED), a-2 (FAILED).",
        "Not among the seeds of again: a-2 (FAILED).",
    ]
    assert told[1] in compare(["a-1,again"], store=store).warnings, "chosen or not"
    make(store, "deeper", 1.0, 3, **{"model.init_args.num_layers": "9"})
    assert sorted(len(row.runs) for row in compare(store=store).rows) == [1, 1, 1, 1, 2]


def test_seeds_on_other_data_are_no_seeds_of_a_model(store: Store) -> None:
    for seed, data in enumerate(("text 1", "text 2", "text 1")):
        make(store, f"a-{seed}", 1.0, seed, data=data)
    assert sorted(len(group) for group in by_seed(search(store))) == [1, 2]
    make(store, "a-3", 1.0, 0, **{"data.init_args.seed": "3"})
    assert sorted(len(group) for group in by_seed(search(store))) == [1, 3], "another order of the batches"


def test_a_seed_that_read_less_is_told(store: Store) -> None:
    for seed in range(2):
        run = make(store, f"a-{seed}", 1.0 + seed, seed)
    Journal(store, run).write({"op": "points", "points": [("num_tokens", 1400.0, now(), 19)]})
    assert compare(store=store).warnings == ["Tokens read differ by 40%: 1k in a, 1.4k in a."]


def test_what_is_unequal_is_said_above_the_table(store: Store) -> None:
    for seed in range(2):
        for lr in ("0.001", "0.01"):
            make(store, f"gru-{seed}", 1.0 + seed / 10, seed, **{"model.init_args.lr": lr})
    make(store, "lstm", 1.0, 0, "LSTM")
    longer = {"val/loss": [(0, 1.0)], "num_tokens": [(9, 1400.0)]}
    make_run(store, "longer", longer, params={"model.class_path": TASK}, tags={"dataset": "text 1"})
    make_run(store, "other", longer, params={"model.class_path": TASK}, tags={"dataset": "text 2"})
    comparison = compare(store=store)
    assert comparison.warnings == [
        "Tokens read differ by 40%: 1k in gru, 1.4k in longer.",
        "Learning rates tried differ: 2 of gru; 1 of lstm.",
        "From one seed, without an interval: longer, lstm.",
        "Not ranked with these, but below: 1 of other data.",
    ]
    (gru, *_) = (row.run.id for row in comparison.rows if row.name == "gru")
    best = compare([gru, "lstm"], store=store)
    assert "Learning rates tried differ: 2 of gru-0; 1 of lstm." in best.warnings, "of those that were not chosen too"
    shown = text(comparison, 120)
    assert shown.index("Tokens read differ") < shown.index("Learning rates") < shown.index("run id")


def test_rates_of_other_experiments_do_not_count(store: Store) -> None:
    params = {"model.class_path": TASK, "model.init_args.lr": "0.01", "seed_everything": "0"}
    runs = [make_run(store, name, {"val/loss": [(0, 1.0)]}, params=params | {"x": name}) for name in ("a", "b")]
    elsewhere = params | {"x": "a", "model.init_args.lr": "0.1"}
    make_run(store, "c", {"val/loss": [(0, 1.0)]}, params=elsewhere, experiment="another")
    assert not [one for one in compare(runs, store=store).warnings if "rates" in one]
    assert [one for one in compare([*runs, "c"], store=store).warnings if "rates" in one]


def test_by_other_tokens_models_are_ranked_by_bytes(store: Store) -> None:
    for name, loss, tokenizer in (("chars", 1.0, "CharTokenizer"), ("words", 5.0, "WordTokenizer")):
        make(store, name, loss, 0, **{"data.init_args.tokenizer.class_path": f"seqlab_data.tokenizers.{tokenizer}"})
    comparison = compare(store=store)
    assert comparison.metric == "val/bits_per_byte"
    assert [(row.name, row.value) for row in comparison.rows] == [("words", 5.0), ("chars", 9.0)]
    assert comparison.warnings == [
        "Tokenizers differ: CharTokenizer in chars; WordTokenizer in words.",
        "Tokens differ between them and bytes do not: ranked by val/bits_per_byte.",
    ]
    assert compare(["chars"], store=store).metric == "val/loss"
    assert compare(metric="val/bits_per_char", store=store).metric == "val/bits_per_char"


def test_runs_are_named_by_row_or_with_commas(
    three_models: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(shutil.copytree(three_models.root, tmp_path / "mlruns"))
    found = search(store)
    assert {run.name for run in runs_named("gru", found, store)} == {"gru-s0", "gru-s1", "gru-s2"}
    assert [run.name for run in runs_named("rnn-s1,gru-s2", found, store)] == ["rnn-s1", "gru-s2"]
    assert [run.name for run in runs_named("rnn-s1", found, store)] == ["rnn-s1"]
    assert main(["compare", "rnn", "gru-s2,gru-s1", "--quiet"]) == 0
    assert len(capsys.readouterr().out.split()) == 5
    make(store, "gru", 1.0, 0, "another")
    assert main(["compare", "gru"]) == 2
    assert "'gru' names more than one row: gru-s2 (" in capsys.readouterr().err
    assert main(["compare", "gru", "rnn", "--paired", "--metric", "test/loss"]) == 2
    assert "--paired prints how models differ by test example, and takes no --metric" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (["gru-s0", "gru-s1", "gru-s12"], "gru"),
        (["a-128 seed=1", "a-128 seed=2"], "a-128"),
        (["lstms0", "lstms1"], "lstms"),
        (["gru-2", "gru-2"], "gru-2"),
        (["calm-owl-3", "shy-fox-4"], "calm-owl-3"),
        (["7", "8"], "7"),
        (["one"], "one"),
    ],
)
def test_the_name_of_a_row(names: list[str], shared: str) -> None:
    assert shared_name(names) == shared


@pytest.fixture
def nats() -> Any:
    return np.random.default_rng(3).normal(2, 1, (50, 4))


def make_tested(store: Store, name: str, nats: Any, seed: int = 0, **params: str) -> None:
    """A run that was tested, and has the predictions of it."""
    kind = of("LanguageModeling", "text 1")
    kind["params"] |= {"seed_everything": str(seed), **params}
    points = {"val/loss": [(9, nats.mean())], "test/loss": [(9, nats.mean())], "test/accuracy": [(9, nats.mean())]}
    run = find_run(make_run(store, name, points, **kind), store)
    kept_predictions(run).mkdir(parents=True)
    lines = [json.dumps({"row": row, "nats": its.tolist()}) + "\n" for row, its in enumerate(nats)]
    (kept_predictions(run) / "test.jsonl").write_text("".join(lines))


def test_a_run_alone_has_the_interval_of_its_examples(store: Store, nats: Any) -> None:
    make_tested(store, "one", nats)
    make_tested(store, "two", nats + 0.1, lr="2")
    comparison = compare(metric="test/loss", store=store)
    low, high = stats.t.interval(0.95, 49, nats.mean(), stats.sem(nats.mean(axis=1)))
    assert comparison.rows[0].half_width == pytest.approx((high - low) / 2, rel=0.05)
    assert comparison.ranks == [(1, 2)] * 2 and f"{comparison.rows[0].half_width:.4f}" in text(comparison)
    assert comparison.warnings == ["From one seed, with the interval over other test examples: one, two."]
    for metric in ("val/loss", "test/accuracy"):  # of which the predictions are not
        assert not compare(metric=metric, store=store).has_intervals


def test_other_seeds_and_other_examples_add_up(store: Store, nats: Any) -> None:
    for seed, more in enumerate((0.0, 0.1, 0.2)):
        make_tested(store, f"a-{seed}", nats + more, seed)
    (row,) = compare(metric="test/loss", store=store).rows
    assert row.spread is not None and row.of_examples is not None
    assert row.of_examples.value == pytest.approx(row.value) == row.spread.value
    assert row.half_width == pytest.approx(np.hypot(row.spread.half_width, row.of_examples.half_width))
    make_tested(store, "a-3", nats[:-1], seed=3)
    (row,) = compare(metric="test/loss", store=store).rows
    assert row.of_examples is None and row.spread is not None, "one was tested on other rows"


def test_predictions_of_something_else_give_no_interval(store: Store, nats: Any) -> None:
    make_tested(store, "moved", nats)
    (file,) = kept_predictions(find_run("moved", store)).iterdir()
    for lines in (file.read_text().replace("2.", "3."), "{not json"):
        file.write_text(lines)
        comparison = compare(metric="test/loss", store=store)
        assert comparison.rows[0].half_width == 0 and "95%" not in "".join(comparison.header)
