"""The interval of other test examples, of runs that have their predictions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seqlab.comparison.comparison import compare
from seqlab.comparison.examples import kept_predictions
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store
from tracking.test_comparison import of, text
from tracking.tiny import make_run


@pytest.fixture
def nats() -> Any:
    return np.random.default_rng(3).normal(2, 1, (50, 4))


def make(store: Store, name: str, nats: Any, seed: int = 0, **params: str) -> None:
    """A run that was tested, and has the predictions of it."""
    kind = of("LanguageModeling", "text 1")
    kind["params"] |= {"seed_everything": str(seed), **params}
    points = {"val/loss": [(9, nats.mean())], "test/loss": [(9, nats.mean())], "test/accuracy": [(9, nats.mean())]}
    run = find_run(make_run(store, name, points, **kind), store)
    kept_predictions(run).mkdir(parents=True)
    lines = [json.dumps({"row": row, "nats": its.tolist()}) + "\n" for row, its in enumerate(nats)]
    (kept_predictions(run) / "test.jsonl").write_text("".join(lines))


def test_a_run_alone_has_the_interval_of_its_examples(store: Store, nats: Any) -> None:
    make(store, "one", nats)
    make(store, "two", nats + 0.1, lr="2")
    comparison = compare(metric="test/loss", store=store)
    low, high = stats.t.interval(0.95, 49, nats.mean(), stats.sem(nats.mean(axis=1)))
    assert comparison.rows[0].half_width == pytest.approx((high - low) / 2, rel=0.05)
    assert comparison.ranks == [1, 1] and f"{comparison.rows[0].half_width:.4f}" in text(comparison)
    assert comparison.warnings == ["Of one seed, with the interval of other test examples: one, two."]
    for metric in ("val/loss", "test/accuracy"):  # of which the predictions are not
        assert not compare(metric=metric, store=store).has_intervals


def test_other_seeds_and_other_examples_add_up(store: Store, nats: Any) -> None:
    for seed, more in enumerate((0.0, 0.1, 0.2)):
        make(store, f"a-{seed}", nats + more, seed)
    (row,) = compare(metric="test/loss", store=store).rows
    assert row.spread is not None and row.of_examples is not None
    assert row.of_examples.value == pytest.approx(row.value) == row.spread.value
    assert row.half_width == pytest.approx(np.hypot(row.spread.half_width, row.of_examples.half_width))


def test_seeds_that_were_tested_on_other_rows_have_no_interval_of_examples(store: Store, nats: Any) -> None:
    make(store, "a-0", nats)
    make(store, "a-1", nats[:-1], seed=1)
    (row,) = compare(metric="test/loss", store=store).rows
    assert row.of_examples is None and row.spread is not None


def test_predictions_of_something_else_give_no_interval(store: Store, nats: Any) -> None:
    make(store, "moved", nats)
    (file,) = kept_predictions(find_run("moved", store)).iterdir()
    for lines in (file.read_text().replace("2.", "3."), "{not json"):
        file.write_text(lines)
        comparison = compare(metric="test/loss", store=store)
        assert comparison.rows[0].half_width == 0 and "95%" not in "".join(comparison.header)
