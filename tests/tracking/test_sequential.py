"""Seeds added until models are told apart: the levels of the looks, false alarms, and the command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from seqlab.cli import main
from seqlab.comparison.sequential import FIRST_LOOK, Decision, decide, level
from seqlab.comparison.statistics import LEVEL, better, mean
from seqlab.tracking.runs import TrackedRun, search
from seqlab.tracking.store import Store
from tracking.tiny import make_run


def looked_at(values: NDArray[np.float64], counts: Sequence[int] | None = None, most: int = 10) -> Decision:
    counts = [values.shape[1]] * len(values) if counts is None else counts
    return decide(lambda row, seeds: mean(values[row, :seeds]), counts, most)


@pytest.mark.parametrize("most", [3, 5, 6, 10, 40])
def test_the_looks_spend_the_level_and_no_more(most: int) -> None:
    levels = [level(seeds, most) for seeds in range(min(FIRST_LOOK, most), most + 1)]
    assert sum(levels) == pytest.approx(LEVEL, abs=1e-15) and min(levels) > 0
    assert levels[0] == pytest.approx(LEVEL * math.log(1 + (math.e - 1) * min(FIRST_LOOK, most) / most))


@pytest.mark.parametrize(("models", "most"), [(2, 10), (2, 20), (5, 10)])
@pytest.mark.parametrize("unequal", [False, True])
def test_equal_models_are_seldom_told_apart_at_any_look(models: int, most: int, unequal: bool) -> None:
    draw = np.random.default_rng(models + most)
    spreads = np.geomspace(1, 10 if unequal else 1, models)[:, None]
    times = 600
    false = sum(looked_at(spreads * draw.normal(size=(models, most)), most=most).told.any() for _ in range(times))
    assert false <= LEVEL * times + 2 * math.sqrt(LEVEL * (1 - LEVEL) * times)


def test_looking_at_each_seed_at_the_full_level_would_be_false() -> None:
    draw, times = np.random.default_rng(0), 600
    looks = range(FIRST_LOOK, 21)
    values = draw.normal(size=(times, 2, 20))
    false = sum(any(better(mean(one[:, :seeds])).any() for seeds in looks) for one in values)
    assert false > LEVEL * times + 4 * math.sqrt(LEVEL * (1 - LEVEL) * times), "the simulation can fail"


def test_models_told_apart_get_no_more_seeds() -> None:
    values = np.array(
        [[1.0, 1.1, 0.9, 1.05, 0.95, 1.0], [1.02, 1.1, 0.9, 1.0, 0.98, 1.05], [9.0, 9.1, 8.9, 9.05, 9, 9]]
    )
    assert looked_at(values, [4, 5, 3])[1:] == (0, {0: 5, 2: 5}), "nothing is looked at before all have 5"
    first = looked_at(values, [5, 5, 5])
    assert (first.seeds, first.wanting) == (5, {0: 6, 1: 6})
    assert first.told.tolist() == [[False, False, True], [False, False, True], [False, False, False]]
    assert looked_at(values, [6, 6, 5], most=6)[1:] == (6, {}), "spent"
    assert looked_at(values[[0, 2]], [5, 5])[1:] == (5, {}), "decided"


def test_more_seeds_repeat_the_earlier_looks() -> None:
    values = np.array([[0], [9], [18], [18]]) + np.random.default_rng(3).normal(size=(4, 10))
    counts = [5] * 4
    while wanting := (decision := looked_at(values, counts)).wanting:
        counts = [wanting.get(row, count) for row, count in enumerate(counts)]
    assert (decision.told == looked_at(values).told).all() and counts[0] < counts[3] == 10


FIT = (
    *("fit", "--config=synthetic/recall", "--data.num_train=64", "--data.batch_size=16", "--model.model.d_model=16"),
    *("--model.warmup_steps=1", "--experiment=few", "--trainer.max_steps=2"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one of which hardly learns."""
    path = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        for name, lr in (("quick", 0.03), ("slow", 1e-9)):
            assert main([*FIT, f"--run_name={name}", f"--model.lr={lr}", "--seed_everything=1"]) == 0
    return path


def test_the_command_fits_seeds_until_decided(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main(["compare", "--experiment", "few", "--until-decided", "--max-seeds", "3", "--jobs", "2"]) == 0
    printed = capsys.readouterr()
    assert "adding seeds: quick to 3, slow to 3" in printed.err and "1 of 1 pairs of rows are told apart" in printed.err
    assert "with up to 3 seeds each; 4 fits were added in" in printed.err
    rows = [line.split() for line in printed.out.splitlines() if line.split()[:1] in (["1"], ["2"])]
    assert [row[:2] for row in rows] == [["1", "quick"], ["2", "slow"]] and all("3" in row for row in rows)
    runs = search(Store(), experiment="few")
    assert {run.name: run.params["seed_everything"] for run in runs if run.name.startswith("slow")} == {
        "slow": "1",
        "slow-s0": "0",
        "slow-s2": "2",
    }
    assert {run.params["data.init_args.seed"] for run in runs} == {"0"}
    assert main(["compare", "--experiment", "few", "--until-decided", "--max-seeds", "3"]) == 0
    assert "; 0 fits were added in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("--max-seeds 4", "--max-seeds is for --until-decided"),
        ("--jobs 2", "--jobs is for --until-decided"),
        ("--until-decided --max-seeds 2", "--max-seeds 2 --jobs 1: accepted: 3 to 1000 seeds"),
        ("--until-decided --max-seeds 1001", "accepted: 3 to 1000 seeds"),
        ("--until-decided --jobs 0", "and at least one job"),
        ("--until-decided --metric val/nothing", "no run has the metric 'val/nothing'"),
        ("quick --until-decided", "--until-decided needs at least two rows"),
        ("quick slow --until-decided --paired", "takes no --until-decided"),
    ],
)
def test_what_cannot_be_decided(
    args: str, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    before = len(search(Store()))
    assert main(["compare", *args.split()]) == 2
    assert told in (said := capsys.readouterr().err) and said.count("\n") == 1
    assert len(search(Store())) == before


def test_a_run_of_a_stranger_imports_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(TrackedRun, "config", {"model": {"class_path": "os.system"}})
    ids = [run.id for run in search(Store(), experiment="few")]
    capsys.readouterr()
    assert main(["compare", *ids, "--until-decided", "--max-seeds", "4"]) == 2
    assert "the stored config names os.system as model.class_path" in capsys.readouterr().err


def test_a_name_that_another_config_has_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    make_run(Store(), "quick-s3", {"val/loss": [(0, 1.0)]}, experiment="few")
    capsys.readouterr()
    ids = [run.id for run in search(Store(), experiment="few") if run.name != "quick-s3"]
    assert main(["compare", *ids, "--until-decided", "--max-seeds", "9"]) == 2
    assert "quick-s3 would be a seed of quick, but is a run with another config" in capsys.readouterr().err
