"""Options as they are typed: hyphens or underscores, values after a space, however deep, and names that are unknown."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from jsonargparse._typehints import resolve_class_path_by_name

from cli.conftest import TINY, Seqlab
from seqlab.cli import VERBS, fit, main, sweep
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.cli.parsed_fit import ParsedFit
from seqlab.cli.spelling import OF_LIGHTNING, as_lightning
from seqlab.cli.verb import Verb
from seqlab.config.configs import resolve_names
from seqlab.config.quiet import quiet
from seqlab.config.trust import only_trusted
from seqlab.models import DecoderLM

Parse = Callable[..., argparse.Namespace]
OF_TWO_WORDS = [
    (verb, name)
    for verb in VERBS
    for argument in verb.arguments
    for name in argument.names
    if name.startswith("--") and "-" in name[2:]
]


@pytest.fixture(name="parse")
def _parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    parsed: list[argparse.Namespace] = []

    def run(options: argparse.Namespace) -> int:
        parsed.append(options)
        return 0

    def parse(verb: Verb, *args: str) -> argparse.Namespace:
        """Arguments that a verb receives from a command line."""
        monkeypatch.setattr("seqlab.cli.VERBS", (verb._replace(run=run),))
        assert main([verb.name, *args]) == 0
        return parsed.pop()

    return parse


@pytest.mark.parametrize(("verb", "name"), OF_TWO_WORDS, ids=[f"{verb.name} {name}" for verb, name in OF_TWO_WORDS])
def test_hyphen_and_underscore_mean_the_same(verb: Verb, name: str, parse: Parse) -> None:
    needed = ["--config=c", "--tokens=1"] if verb.name == "estimate" else ["--config=c"] * (verb.name == "submit")
    places = [argument.names[0] for argument in verb.arguments if argument.names[0] in ("target", "targets", "folder")]
    underscored = f"--{name[2:].replace('-', '_')}"
    settings = next(argument.settings for argument in verb.arguments if name in argument.names)
    value, given = "3", [[f"{name}=3"], [f"{underscored}=3"], [name, "3"], [underscored, "3"]]
    if settings.get("action") == "store_true":
        value, given = "True", [[name], [underscored]]
    first, *others = [parse(verb, *places, *typed, *needed) for typed in given]
    assert all(options == first for options in others)
    assert str(vars(first)[underscored[2:]]) in (value, "3.0") and not first.overrides


@pytest.mark.parametrize(
    ("verb", "given", "own", "handed_on"),
    [
        (sweep.sweep, "--trainer.max_steps 20", {"file": None}, "--trainer.max_steps 20"),
        (sweep.sweep, "--trainer.max_steps=20 s.yaml", {"file": "s.yaml"}, "--trainer.max_steps=20"),
        (sweep.sweep, "--trainer.max_epochs -1 s.yaml", {"file": "s.yaml"}, "--trainer.max_epochs -1"),
        (sweep.sweep, "--match params --to 1e5 s.yaml", {"file": "s.yaml"}, "--match params --to 1e5"),
        (sweep.sweep, "s.yaml --seeds 2 --ema 0.9", {"file": "s.yaml", "seeds": 2}, "--ema 0.9"),
        (sweep.sweep, "--trials 3 -- --data.path a", {"trials": 3, "file": None}, "--data.path a"),
        (fit.resume, "--trainer.max_steps 20 a-run", {"target": "a-run"}, "--trainer.max_steps 20"),
    ],
)
def test_a_fits_option_is_handed_on_with_the_value_after_a_space(
    verb: Verb, given: str, own: dict[str, object], handed_on: str, parse: Parse
) -> None:
    options = parse(verb, *given.split())
    assert options.overrides == handed_on.split()
    assert {name: getattr(options, name) for name in own} == own


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


class _ParserError(Exception):
    pass


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


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("sweep --trails 3", "sweep has no option --trails; did you mean --trials?"),
        ("profile --stepz=3", "profile has no option --stepz; did you mean --steps?"),
        ("submit --nodez 3", "submit has no option --nodez; did you mean --nodes?"),
        ("resume a --run_nam b", "resume has no option --run_nam; did you mean --run_name?"),
        ("generate a --max_tokens", "generate has no option --max-tokens; did you mean --max-new-tokens?"),
        ("compare --xyz", "compare has no option --xyz; see seqlab compare --help"),
    ],
)
def test_an_unknown_option_names_the_nearest(args: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args.split()) == 2
    assert capsys.readouterr().err == f"seqlab: {said}\n"


@pytest.mark.parametrize("verb", fit.LIGHTNING)
def test_a_verb_without_a_config_asks_for_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == 2
    assert "no data and model: --config NAME|PATH gives them" in capsys.readouterr().err


def test_a_score_of_an_untrained_model_says_so(beside_first: Seqlab) -> None:
    said = "seqlab validate: the model is untrained; give a RUN or --ckpt_path\n"
    small = [flag for flag in TINY if flag.startswith(("--data", "--model"))]
    assert said in beside_first("validate", "--config", "lm/gru", *small, "--trainer.limit_val_batches=1").stderr
    assert said not in beside_first("validate", "first", "--trainer.limit_val_batches=1").stderr


MODULE = """
import lightning as L

class Inner:
    def __init__(self, text: str | None = "default", pattern: str = "x"): ...

class Outer:
    def __init__(self, inner: Inner, text: str | None = "default", pattern: str = "x"): ...

class Data(L.LightningDataModule):
    def __init__(self, outer: Outer, text: str | None = "default", pattern: str = "x"): ...
"""
OF_INNER = {"text": None, "pattern": 'c\\d \\w+ "q"\n'}
INNER = {"class_path": "nested_parts.Inner", "init_args": OF_INNER}
OF_OUTER = {"text": None, "pattern": "a\\b"}
OUTER = {"class_path": "nested_parts.Outer", "init_args": {"inner": INNER, **OF_OUTER}}
OF_DATA = {"text": None, "pattern": "e\\f"}
DATA = {"class_path": "nested_parts.Data", "init_args": {"outer": OUTER, **OF_DATA}}
WITH_DEFAULTS = {
    "class_path": "nested_parts.Data",
    "init_args": {"outer": {"class_path": "nested_parts.Outer", "init_args": {"inner": "nested_parts.Inner"}}},
}


def within(place: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{place}.{name}": value for name, value in values.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"data": DATA},
        {"data.outer": OUTER, **within("data", OF_DATA)},
        {"data.outer.inner": INNER, **within("data.outer", OF_OUTER), **within("data", OF_DATA)},
        {"data.outer.inner": "nested_parts.Inner", **within("data.outer.inner", OF_INNER)}
        | {**within("data.outer", OF_OUTER), **within("data", OF_DATA)},
    ],
)
def test_options_arrive_as_from_yaml(given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nested_parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["seqlab"])  # Lightning warns where a program's own arguments differ
    quiet()

    def parsed(data: dict[str, Any], *args: str) -> Any:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": "seqlab.tasks.LanguageModeling", "data": data}))
        model = '--model.model={"class_path": "DecoderLM", "init_args": {"mixer": "GRU"}}'
        return ParsedFit("fit", [f"--config={tmp_path / 'config.yaml'}", model, *args]).config["fit"].data

    args = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()]
    assert parsed(WITH_DEFAULTS, *args) == parsed(DATA)


@pytest.mark.slow
def test_a_mapping_of_a_callback_arrives_as_from_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["seqlab"])
    quiet()
    timer = {"class_path": "Timer", "init_args": {"duration": {"minutes": 10}}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"trainer": {"callbacks": [timer]}}), encoding="utf-8")
    ways = ([f"--config={config}"], [f"--trainer.callbacks+={json.dumps(timer)}"])
    begin = resolve_names(["--config=lm/gru", "--data.path=text.txt"])
    written, typed = (ParsedFit("fit", [*begin, *way]).config["fit"].trainer.callbacks for way in ways)
    assert written == typed and typed[0].init_args.duration == {"minutes": 10}


def _named(module: str) -> type:
    return type("DecoderLM", (DecoderLM,), {"__module__": module, "__qualname__": "DecoderLM"})


def test_a_class_with_the_path_of_another_is_not_meant() -> None:
    """torch.export leaves such classes behind until their memory is collected. Classes of other modules are meant too,
    also while a checkpoint's config is read, which may not import them."""
    derived = _named(DecoderLM.__module__)
    assert derived in DecoderLM.__subclasses__()
    assert resolve_class_path_by_name(DecoderLM, "DecoderLM") == "seqlab.models.DecoderLM"
    module = sys.modules["theirs"] = ModuleType("theirs")
    module.DecoderLM = _named("theirs")  # type: ignore[attr-defined]
    with only_trusted(()), pytest.raises(ValueError, match="Multiple subclasses with name DecoderLM"):
        resolve_class_path_by_name(DecoderLM, "DecoderLM")
    del sys.modules["theirs"], module.DecoderLM, module, derived
    gc.collect()
