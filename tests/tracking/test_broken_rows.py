"""A broken row of a store takes no other run down: it is named with its defect, and the rest stands."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seqlab.cli import main
from seqlab.comparison.comparison import compare
from seqlab.comparison.report import page
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.runs import find_run, search, search_all
from seqlab.tracking.server import run_pages
from seqlab.tracking.store import Store
from tracking.tiny import edit, make_run

BAD = "(SELECT run_uuid FROM runs WHERE name = 'bad')"
SIZES = ("num_params", "num_flops", "state_size", "perf/tokens_per_s", "perf/train_seconds")
POINTS = {
    **{name: [(1, 2.0), (2, 1.5)] for name in ("val/loss", "train/loss", "val/bits_per_char", "val/loss_at_1")},
    **{name: [(0, 100.0)] for name in SIZES},
    "num_tokens": [(1, 10.0), (2, 20.0)],
}


def of_run(column: str, value: str) -> list[str]:
    return [f"UPDATE runs SET {column} = {value} WHERE name = 'bad'"]


def of_metric(value: str, *tables: str) -> list[str]:
    return [f"UPDATE {table} SET {value} WHERE run_uuid = {BAD}" for table in tables]


BOTH = "metrics", "latest_metrics"
BROKEN = {
    "an artifact_uri of bytes": (
        of_run("artifact_uri", "x'ff00'"),
        r"its artifact_uri is b'\xff\x00', which is not text",
    ),
    "no status": (of_run("status", "NULL"), "status"),
    "a start_time of text": (
        of_run("start_time", "'yesterday'"),
        "its start_time is 'yesterday', which is not a time in",
    ),
    "no start_time": (of_run("start_time", "NULL"), "start_time"),
    "a start_time in the year 60000": (of_run("start_time", "1831000000000000"), "its start_time is 1831000000000000"),
    "a start_time before 1970": (of_run("start_time", "-1"), "its start_time is -1, which is not a time in"),
    "a metric of text": (of_metric("value = 'much'", *BOTH), "is 'much', which is not a number"),
    "a metric of bytes": (of_metric("value = x'ff'", "latest_metrics"), r"is b'\xff', which is not a number"),
    "a tag of bytes": (of_metric("value = x'ff00'", "tags"), r"is b'\xff\x00', which is not text"),
    "a tag that is none": ([f"INSERT INTO tags VALUES ('x', NULL, {BAD})"], "its tag x is None, which is not text"),
    "a tag that is not UTF-8": (of_metric("value = CAST(x'ff' AS TEXT)", "tags"), "UTF-8"),
    "a parameter of bytes": (of_metric("value = x'ff'", "params"), r"parameter p is b'\xff'"),
    "a metric's name of bytes": (
        of_metric("key = CASE key WHEN 'val/loss' THEN x'ff' ELSE key END", "latest_metrics"),
        r"is named b'\xff', which is not text",
    ),
    "a name of bytes": (of_run("name", "x'ff'"), r"its name is b'\xff', which is not text"),
    "an id of bytes": (of_run("run_uuid", "x'00'"), "its id is invalid"),
}
STANDING = {
    "no artifact_uri": of_run("artifact_uri", "NULL"),
    "an artifact_uri of one part": of_run("artifact_uri", "'x'"),
    "an artifact_uri that is empty": of_run("artifact_uri", "''"),
    "points of text": of_metric("value = 'much'", "metrics"),
    "steps of text": of_metric("step = 's'", *BOTH),
    "NaN": of_metric("is_nan = 1", *BOTH),
    "infinity": of_metric("value = 9e999", *BOTH),
    "infinity as MLflow writes it": of_metric("value = 1.7976931348623157e308", *BOTH),
    "no name": of_run("name", "NULL"),
}


Break = Callable[[list[str]], Store]


@pytest.fixture(scope="module")
def two_runs(shared: Store) -> Path:
    for name in ("good", "bad"):
        make_run(shared, name, POINTS, tags={"a": "b"}, params={"p": "1"})
    return shared.root


@pytest.fixture(name="broken_store")
def _broken_store(two_runs: Path, tmp_path: Path) -> Break:
    def make(edits: list[str]) -> Store:
        store = Store(shutil.copytree(two_runs, tmp_path / "mlruns"))
        edit(store, *edits)
        return store

    return make


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_run_is_told_and_the_others_stand(
    what: str, broken_store: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    edits, why = BROKEN[what]
    store = broken_store(edits)
    runs, [broken] = search_all(store)
    assert [run.name for run in runs] == [run.name for run in search(store)] == ["good"]
    assert why in broken.why
    assert main(["compare"]) == 0
    said = capsys.readouterr().out
    assert "good" in said and "Left out because it cannot be read:" in said
    for verb in (["generate", "good"], ["export", "good", "--out", "bundle"]):
        assert main(verb) == 2
        assert "has no checkpoint" in capsys.readouterr().err
    assert main(["generate", broken.id]) == 2
    [refused] = capsys.readouterr().err.splitlines()
    assert "cannot be read" in refused or "no run has the id" in refused
    assert "tests" in run_pages(store)


@pytest.mark.slow
@pytest.mark.parametrize("what", STANDING)
def test_what_a_run_need_not_say_takes_nothing_down(
    what: str, broken_store: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    store = broken_store(STANDING[what])
    runs, broken = search_all(store)
    assert len(runs) == 2 and not broken
    assert main(["compare", "--tokens=1e9", "--price=1", "--out", "report.html"]) == 0
    table = capsys.readouterr().out
    assert "good" in table and "1.5000" in table
    if what == "NaN" or what.startswith("infinity"):
        assert "nan" not in table and "inf" not in table.replace("not finite", "")
        assert "not finite" in table and "not finite" in Path("report.html").read_text()
        assert not any(math.isfinite(value) for _, value in find_run("bad", store).history("val/loss"))
    assert compare(store=store).unreadable == ()


def test_a_broken_run_is_refused_by_its_name(broken_store: Break) -> None:
    store = broken_store(BROKEN["a start_time of text"][0])
    with pytest.raises(ValueError, match=r"a run cannot be read: bad \(\w{8}\): its start_time is 'yesterday'"):
        find_run("bad", store)
    assert find_run("good", store).name == "good"
    assert "Left out because it cannot be read:" in page(compare(store=store))


def test_where_every_run_is_broken_it_is_said(broken_store: Break) -> None:
    why = r"no runs to compare in .*; one cannot be read: good .*; one cannot be read: bad "
    with pytest.raises(ValueError, match=why):
        compare(store=broken_store(["UPDATE runs SET start_time = NULL"]))


@pytest.mark.parametrize("column", ["artifact_location = NULL", "artifact_location = x'ff'", "lifecycle_stage = NULL"])
def test_a_broken_experiment_takes_no_run(column: str, broken_store: Break) -> None:
    broken_store([f"UPDATE experiments SET {column} WHERE name = 'tests'"])
    with pytest.raises(ValueError, match=r"experiment 'tests' of sqlite:.* name another one"):
        RunLogger("tests").begin()
    RunLogger("others").begin()
