"""A table of limits: each lets its own value pass and refuses the next one, in a sentence that names the limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pytest

from limits.edge import Edge
from seqlab.budgets.match import CostEstimate, _nearest
from seqlab.callbacks.rank_watchdog import Note, RankWatchdog
from seqlab.comparison.statistics import seeds_needed
from seqlab.config.trust import _values
from seqlab.sweeps.result import LETTERS, _short
from seqlab.tracking.logger import check_experiment
from seqlab.tracking.provenance import is_gone
from seqlab.tracking.readable import _defect
from seqlab.tracking.runs import TrackedRun, listed
from seqlab.trained.same_vocabulary import _shown
from seqlab_data.annotated import AnnotatedDataModule
from seqlab_export.proof.own_error import check_step
from seqlab_export.runner.manifest import Manifest, StateInfo
from seqlab_export.runner.manifest_kinds import Reader


def nested(depth: int) -> None:
    value: object = 0
    for _ in range(depth):
        value = [value]
    list(_values(value))


def number_of_a_manifest(number: int) -> None:
    Reader({}).read({"count": 1}, number, "seq_len")


def state_of(numbers: int) -> None:
    entry = StateInfo(name="s", dtype="float32", dims=("B", numbers), initial=0.0)
    manifest: Any = SimpleNamespace(model=None, step=None, guess=None, encoder=None, state=(entry,), max_seq_len=None)
    manifest.state_bytes = lambda: Manifest.state_bytes(manifest)
    Manifest._check_decoder(manifest)


def matched_to(budget: float) -> None:
    _nearest(lambda number: CostEstimate(100.0 * number), 1, 1, budget, "d_model")


def searched_to(budget: float) -> None:
    _nearest(lambda number: CostEstimate(float(number)), 1, 1, budget, "d_model")


def step_off_by(relative: float, name: str = "logits") -> None:
    exact = np.ones((1, 1, 4))
    check_step({"logits": exact, name: exact * (1 + relative)}, {"logits": exact, name: exact}, "step")


EDGES = {
    "a stored config's depth": Edge(nested, 100, 101, "deeper than 100 levels"),
    "an experiment's name": Edge(
        lambda size: check_experiment("x" * size), 500, 501, "has 501 characters; .* 1 to 500"
    ),
    "a manifest's number": Edge(number_of_a_manifest, 2**40, 2**40 + 1, "seq_len must be a whole number .* 2\\^40"),
    "a state of 4 GiB": Edge(state_of, 2**29, 2**29 + 1, "takes 4294967304 bytes a text, at most 4294967296"),
    "a match, above": Edge(matched_to, 98.04, 98.03, "neither is within 2%"),
    "a match, below": Edge(matched_to, 102.04, 102.05, "neither is within 2%"),
    "a match's largest number": Edge(searched_to, 2.0**24, 2.0**24 + 1, "gives 16,777,216 only"),
    "a step that is not the forward": Edge(step_off_by, 0.99e-9, 1.01e-9, "differ by 1.0e-09 in float64"),
    "a step's state": Edge(partial(step_off_by, name="new_state_s"), 0.99e-9, 1.01e-9, r"\(step, new_state_s\)"),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_limit_accepts_its_own_value_and_refuses_the_next(name: str) -> None:
    EDGES[name].check()


def runs(count: int) -> str:
    run = TrackedRun("0" * 32, "r", "e", "FINISHED", 0, {}, {}, {}, cast(Any, None), cast(Any, None))
    return listed([run] * count)


def labels(count: int) -> str:
    data: Any = SimpleNamespace(labels=["known"] * count, _classes={}, remedy="")
    with pytest.raises(ValueError, match="which the train split lacks") as refused:
        AnnotatedDataModule.class_at(data, "t:1", "new")
    return str(refused.value)


@pytest.mark.parametrize(
    ("lists", "most"),
    [(runs, 10), (labels, 20), (lambda count: _shown(["x"] * count), 5)],
    ids=["runs", "labels", "ids"],
)
def test_a_list_names_so_many_and_counts_the_rest(lists: Callable[[int], str], most: int) -> None:
    assert "more" not in lists(most)
    assert " and 1 more" in lists(most + 1)


@pytest.mark.parametrize(("letters", "is_cut"), [(24, False), (25, True)])
def test_a_sweeps_table_cuts_a_long_value(letters: int, is_cut: bool) -> None:
    assert _short("x" * letters, LETTERS) == ("x" * 23 + "…" if is_cut else "x" * letters)


@pytest.mark.parametrize(("apart", "gone"), [(1.9, False), (2.1, True)])
def test_a_process_that_began_two_seconds_apart_is_another_one(apart: float, gone: bool) -> None:
    began = psutil.Process().create_time()
    assert is_gone({"process.id": str(os.getpid()), "process.start": repr(began - apart)}) == gone


LAST = 253402300799999  # milliseconds from 1970 to the end of the year 9999


@pytest.mark.parametrize(("start", "is_read"), [(-1, False), (0, True), (LAST, True), (LAST + 1, False)])
def test_a_run_begins_between_1970_and_the_year_9999(start: int, is_read: bool) -> None:
    info = SimpleNamespace(run_id="r", run_name="r", status="FINISHED", artifact_uri="a", start_time=start)
    run: Any = SimpleNamespace(info=info, data=SimpleNamespace(tags={}, params={}, metrics={}))
    assert (_defect(run) == "") == is_read


@pytest.mark.parametrize(("silent", "is_late"), [(20.0, False), (20.1, True)])
def test_a_rank_that_writes_no_note_for_four_beats_of_five_seconds_is_late(silent: float, is_late: bool) -> None:
    mine, other = Note(3, "step", "", 100.0), Note(3, "step", "", 100.0 - silent)
    assert RankWatchdog()._is_late(other, mine) == is_late


@pytest.mark.parametrize(("effect", "needed"), [(0.08868, 1000), (0.08867, None)])
def test_a_thousand_seeds_are_the_most_that_are_told(effect: float, needed: int | None) -> None:
    assert seeds_needed(effect, 1.0) == needed
