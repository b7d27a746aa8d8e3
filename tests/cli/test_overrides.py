"""Options of a fit on the command lines of verbs that hand them on."""

from __future__ import annotations

import argparse

import pytest

from seqlab.cli import fit, main, sweep


@pytest.mark.parametrize(
    ("given", "own", "handed_on"),
    [
        (["--trainer.max_steps", "20"], {"file": None}, ["--trainer.max_steps", "20"]),
        (["--trainer.max_steps=20", "s.yaml"], {"file": "s.yaml"}, ["--trainer.max_steps=20"]),
        (["--trainer.max_epochs", "-1", "s.yaml"], {"file": "s.yaml"}, ["--trainer.max_epochs", "-1"]),
        (["--match", "params", "--to", "1e5", "s.yaml"], {"file": "s.yaml"}, ["--match", "params", "--to", "1e5"]),
        (["s.yaml", "--seeds", "2", "--ema", "0.9"], {"file": "s.yaml", "seeds": 2}, ["--ema", "0.9"]),
        (["--trials", "3", "--", "--data.path", "a"], {"trials": 3, "file": None}, ["--data.path", "a"]),
    ],
)
def test_a_value_after_a_space_is_the_options(
    given: list[str], own: dict[str, object], handed_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[argparse.Namespace] = []
    recorded = sweep.sweep._replace(run=lambda options: parsed.append(options) or 0)  # type: ignore[func-returns-value]
    monkeypatch.setattr("seqlab.cli.VERBS", (recorded,))
    assert main(["sweep", *given]) == 0
    (options,) = parsed
    assert options.overrides == handed_on
    assert {name: getattr(options, name) for name in own} == own


def test_an_option_before_the_run_takes_its_own_value(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[argparse.Namespace] = []
    recorded = fit.resume._replace(run=lambda options: parsed.append(options) or 0)  # type: ignore[func-returns-value]
    monkeypatch.setattr("seqlab.cli.VERBS", (recorded,))
    assert main(["resume", "--trainer.max_steps", "20", "a-run"]) == 0
    assert (parsed[0].target, parsed[0].overrides) == ("a-run", ["--trainer.max_steps", "20"])
