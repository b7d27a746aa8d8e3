"""The help: short, of the chosen classes as they are; and `env`, for a bug report."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import platform
import re
import runpy
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from jsonargparse import ArgumentParser

from repository.source_tree import ROOT
from seqlab.cli import main
from seqlab.cli.lightning_cli import SeqlabCLI, ShortParser
from seqlab.config import short_help
from seqlab.config.configs import BLOCK_MODULES, import_blocks
from seqlab.config.options import options
from seqlab.config.short_help import ACCEPTED, CLASSES, TRAINER, _class_of
from seqlab.mixer import Mixer


def shown(capsys: pytest.CaptureFixture[str], *args: str, verb: str = "fit") -> str:
    try:
        assert main([verb, *args]) == 0
    except SystemExit as end:  # argparse's
        assert end.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    return text


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_options_of_the_chosen_classes(capsys: pytest.CaptureFixture[str]) -> None:
    short = shown(capsys, "--help")
    assert len(short.splitlines()) < 61 and "--experiment seqlab" in short and "--trainer.max_steps" in short
    chosen = shown(capsys, "--config", "lm/gru", "--model.model.d_model=64", "--model.model.mixer", "LSTM", "-h")
    for said in ("--model.model.d_model 64", "--model.model.mixer LSTM", "--model.model.mixer.forget_bias null"):
        assert said in chosen
    assert "--model.vocab_size" not in chosen and "--trainer.gradient_clip_val 1.0" in chosen


def test_our_classes_are_listed_and_one_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    mixers = shown(capsys, "--config=lm/gru", "--model.model.mixer.help")
    assert "  Attention " in mixers and "  Mamba2 " in mixers and "Module" not in mixers
    assert "  Tagging " in shown(capsys, "--model.help")
    assert "--model.model.mixer.num_kv_heads" in shown(capsys, "--model.model.mixer.help", "Attention")
    assert main(["fit", "--config=lm/gru", "--model.model.mixer.help", "Atention"]) == 2
    assert "did you mean Attention?" in capsys.readouterr().err
    assert main(["fit", "--config=lm/gru", "--model.model.tokens.help"]) == 2
    assert (
        "--model.model.tokens.help: it is not an option that takes a class, or needs a --config"
        in capsys.readouterr().err
    )


def test_every_verb_says_what_it_does_and_what_each_option_is(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = re.findall(r"^    ([a-z][\w-]+)", shown(capsys, verb="--help"), flags=re.MULTILINE)
    assert len(verbs) >= 17
    for verb in verbs:
        usage, does, *lists = shown(capsys, "--help", verb=verb).split("\n\n")
        assert usage.startswith(f"usage: seqlab {verb}") and re.fullmatch(r"[A-Z].*\.", does, flags=re.DOTALL)
        options = re.split(r"\n  (?=\S)", "\n".join(lists))[1:]
        unsaid = [option for option in options if option[0] == "-" and not re.search(r"\S(  +|\n +)\S", option)]
        assert not unsaid, (verb, unsaid)


def test_all_is_what_the_parser_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # argparse's end
        main(["fit", "--help", "all"])
    assert "--trainer.reload_dataloaders_every_n_epochs" in capsys.readouterr().out
    assert set(TRAINER) <= set(inspect.signature(L.Trainer).parameters)


def test_env_prints_what_a_bug_report_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://anna:secret@mlflow.example")
    assert main(["env"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said["torch"] == torch.__version__ and said["python"] == platform.python_version()
    assert {"seqlab", "lightning", "mlflow", "onnx", "processor", "BLAS", "devices"} <= said.keys()
    assert said["store"] == "https://anna:***@mlflow.example"


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_no_option_of_seqlab_is_left_out(verb: str) -> None:
    command = SeqlabCLI.__new__(SeqlabCLI)
    command.verb = verb
    parser = ShortParser()
    parser.link_arguments = lambda *args, **kwargs: None  # type: ignore[method-assign]
    parser.set_defaults = lambda *args, **kwargs: None  # type: ignore[method-assign]
    command.add_arguments_to_parser(parser)
    added = {action.dest for action in parser._actions} - {"help", "lora.help"}
    assert added == {option.name for option in options(verb)}


def test_the_built_file_is_of_the_classes_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Made anew by `python scripts/help.py > platform/seqlab/config/help.json`."""
    runpy.run_path(str(ROOT / "scripts/help.py"), run_name="__main__")
    assert capsys.readouterr().out == Path(short_help.__file__).with_name("help.json").read_text(encoding="utf-8")


def test_help_has_each_option_that_a_parser_takes() -> None:
    import_blocks()
    modules = [importlib.import_module(name) for name in BLOCK_MODULES]
    found = {name: getattr(module, name) for module in modules for name in CLASSES.keys() & vars(module).keys()}
    assert len(found) > 100
    for name, one in found.items():
        owner = next(base for base in one.__mro__ if "__init__" in vars(base))
        if not owner.__module__.startswith("seqlab"):  # an embedding of torch's, say
            continue
        parser = ArgumentParser()
        parser.add_class_arguments(one, fail_untyped=False)
        taken = {action.dest: action.required for action in parser._actions}
        said = {*CLASSES[name]["arguments"]}
        optional = {key for key, required in taken.items() if not required and "." not in key}
        assert optional - {"help", "config", "layer"} <= said <= taken.keys(), name


def test_the_mixers_are_those_that_can_be_made() -> None:
    import_blocks()
    todo, concrete = [Mixer], set()
    for kind in todo:
        todo += kind.__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith(("seqlab.attention", "seqlab.recurrence")):
            concrete.add(kind.__name__)
    assert {*ACCEPTED["Mixer"]} == concrete


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([{"class_path": "a.B", "init_args": {"c": 1}}, "a.D"], ("B", {"c": 1})),
        (["a.B"], ("B", {})),
        ([], ("None", {})),
    ],
)
def test_a_list_of_classes_shows_the_first(value: Any, found: tuple[str, dict[str, Any]]) -> None:
    assert _class_of(value) == found
