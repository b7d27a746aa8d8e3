"""Options as they are typed: hyphens or underscores, and the nearest option's name for one that is unknown."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Seqlab
from seqlab.cli import VERBS, fit, main
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.cli.spelling import OF_LIGHTNING, as_lightning
from seqlab.cli.verb import Verb

OF_TWO_WORDS = [
    (verb, name)
    for verb in VERBS
    for argument in verb.arguments
    for name in argument.names
    if name.startswith("--") and "-" in name[2:]
]


@pytest.mark.parametrize(("verb", "name"), OF_TWO_WORDS, ids=[f"{verb.name} {name}" for verb, name in OF_TWO_WORDS])
def test_hyphen_and_underscore_mean_the_same(verb: Verb, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[argparse.Namespace] = []
    monkeypatch.setattr("seqlab.cli.VERBS", (verb._replace(run=lambda options: parsed.append(options) or 0),))  # type: ignore[func-returns-value]
    needed = ["--config=c", "--tokens=1"] if verb.name == "estimate" else ["--config=c"] * (verb.name == "submit")
    places = [argument.names[0] for argument in verb.arguments if argument.names[0] in ("target", "folder")]
    for typed in (name, f"--{name[2:].replace('-', '_')}"):
        for value in ([f"{typed}=3"], [typed, "3"]):
            assert main([verb.name, *places, *value, *needed]) == 0
    assert len(parsed) == 4 and all(options == parsed[0] for options in parsed)
    assert str(vars(parsed[0])[name[2:].replace("-", "_")]) in ("3", "3.0") and not parsed[0].overrides


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("--run-name=a-b_c", "--run_name=a-b_c"),
        ("--ckpt-path", "--ckpt_path"),
        ("--trainer.max-steps=3", "--trainer.max_steps=3"),
        ("--trainer.callbacks+=x-y", "--trainer.callbacks+=x-y"),
        ("--data.weights.my-key=1", "--data.weights.my-key=1"),
        ("a-value", "a-value"),
        ("-1", "-1"),
    ],
)
def test_lightnings_options_have_underscores_and_a_key_of_the_users_stays(typed: str, read: str) -> None:
    assert as_lightning(typed) == read


@pytest.mark.parametrize("verb", fit.LIGHTNING)
def test_each_option_of_lightning_is_known(verb: str) -> None:
    class Parsed(SeqlabCLI):
        def parse_arguments(self, parser: Any, args: Any) -> None:
            raise _ParserError(parser._subcommands_action.choices[verb])

    with pytest.raises(_ParserError) as found:
        Parsed(verb, [])
    parser = found.value.args[0]
    names = {string for action in parser._actions for string in action.option_strings if string.startswith("--")}
    assert {name.removeprefix("--").partition(".")[0].removesuffix("+") for name in names} <= {*OF_LIGHTNING}


class _ParserError(Exception):
    pass


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sweep", "--trails", "3"], "sweep has no option --trails; did you mean --trials?"),
        (["profile", "--stepz=3"], "profile has no option --stepz; did you mean --steps?"),
        (["submit", "--nodez", "3"], "submit has no option --nodez; did you mean --nodes?"),
        (["resume", "a", "--run_nam", "b"], "resume has no option --run_nam; did you mean --run_name?"),
        (["generate", "a", "--max_tokens"], "generate has no option --max-tokens; did you mean --max-new-tokens?"),
        (["compare", "--xyz"], "compare has no option --xyz; see seqlab compare --help"),
    ],
)
def test_an_unknown_option_names_the_nearest(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert capsys.readouterr().err == f"seqlab: {said}\n"


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_verb_without_a_config_asks_for_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert "no data and model: --config NAME|PATH gives them" in capsys.readouterr().err


def test_a_score_of_an_untrained_model_says_so(inside: Any, fitted: tuple[Path, Seqlab]) -> None:
    seqlab = inside(fitted[0])
    data = ["--data.path=text.txt", "--data.seq_len=16", "--trainer.limit_val_batches=1"]
    said = "seqlab validate: the model is untrained; give a RUN or --ckpt_path\n"
    assert said in seqlab("validate", "--config", "lm/gru", *data).stderr
    assert said not in seqlab("validate", "first", "--trainer.limit_val_batches=1").stderr
