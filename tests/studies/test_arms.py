"""Arms of a study: each at its best learning rate, with each seed, fitted once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from altair import TopLevelMixin

from forks import server_of_this_process
from seqlab.callbacks.stopping import StoppedError
from seqlab.cli import main
from seqlab.study.arms import Arm, fit_arms
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import PARENT_TAG, TrackedRun, search
from seqlab.tracking.store import Store
from seqlab_studies import book

TINY = (
    *("--config=synthetic/recall", "--data.num_train=64", "--data.batch_size=16", "--model.model.d_model=16"),
    *("--model.warmup_steps=1", "--trainer.log_every_n_steps=1"),
)
SMALL = Rule("loss", high=100)


class Pair(Study):
    """Two models, of which the second is offered a rate that ruins it."""

    name = "pair"
    question, matched, why, change = "Do they learn?", "Nothing.", "They do.", "Nothing."
    claims = (
        Claim(
            "loss",
            "They learn.",
            "L9",
            ("gru", "rnn"),
            SMALL,
            (Control("gru", SMALL, True, "It does."), Control("none", SMALL, False, "It does not.")),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        ways = {"gru": (1e-3,), "rnn": (1e-3, 10.0)}
        return [
            Arm(name, (*TINY, f"--model.model.mixer=[CausalConv,{name.upper()}]"), rates)
            for name, rates in ways.items()
        ]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        assert {name: run.params["seed_everything"] for name, run in runs.items()} == dict.fromkeys(runs, str(seed))
        values = {name: run.metrics["val/loss"] for name, run in runs.items()}
        return Measured({**values, "none": 1e3}, [{"seed": seed}])

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(book.STUDIES, "pair", Pair())
    with server_of_this_process():
        yield


@pytest.mark.slow
def test_each_arm_has_its_best_rate_with_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "run", "pair", "--seeds", "2", "--scale", "smoke"]) == 0
    said = capsys.readouterr()
    assert "fit 3 of 3" in said.err and "fit 2 of 2" in said.err
    runs = search(Store(), experiment="pair")
    (parent,) = [run for run in runs if "study" in run.tags]
    fits = {run.name: run for run in runs if run is not parent}
    assert all(run.tags[PARENT_TAG] == parent.id for run in fits.values())
    arms = {arm.name: arm for arm in Pair().arms("smoke")}
    rates = {rate: fits.pop(arms["rnn"].job(rate, 0)) for rate in arms["rnn"].rates}
    best = min(rates, key=lambda rate: rates[rate].metrics["val/loss"])
    assert set(fits) == {arms["gru"].job(1e-3, 0), arms["gru"].job(1e-3, 1), arms["rnn"].job(best, 1)}

    assert main(["study", "run", "pair", "--seeds", "2", "--scale", "cpu"]) == 0
    assert "fit " not in capsys.readouterr().err, "the same fits are not made again"


@pytest.mark.slow
def test_stopped_it_goes_on_where_its_fits_were(capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> None:
        while not any(run.metrics for run in (search(Store(), experiment="pair") if Store().exists else ())):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(StoppedError) as stopped:
        main(["study", "run", "pair", "--seeds", "1", "--jobs", "1"])
    assert stopped.value.code == 143 and "next: the same command" in capsys.readouterr().err
    left = {run.name: run for run in search(Store(), experiment="pair")}
    assert "RUNNING" not in {run.status for run in left.values()}
    assert main(["study", "run", "pair", "--seeds", "1", "--jobs", "1"]) == 0
    runs = search(Store(), experiment="pair")
    assert len(runs) == 4 and {run.status for run in runs} == {"FINISHED"}
    assert {left[run.name].id for run in runs if run.name in left} == {run.id for run in left.values()}


def test_an_arm_that_fails_is_named_with_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    arms = [Arm("no such", (*TINY, "--model.model.d_model=0"), (1e-3,))]
    with pytest.raises(ValueError, match="arm no such: no learning rate could be fitted"):
        fit_arms(arms, "pair", 0, 2, "parent")
    assert "d_model" in capsys.readouterr().err
