"""Every option of every verb with values that nobody means: one sentence, exit code 2, and nothing written."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import TINY, Seqlab
from seqlab.cli import VERBS, fit, main
from seqlab.cli.verb import Verb

ODD = {
    "empty": "",
    "dot": ".",
    "a file": "text.txt",
    "a folder": "folder",
    "0": "0",
    "-1": "-1",
    "huge": "9" * 400,
    "1e400": "1e400",
    "nan": "nan",
    "inf": "inf",
    "an emoji": "🙂",
    "two lines": "a\nb",
    "long": "x" * 5000,
}
NOT_EMPTY = {*ODD} - {"empty"}

BASES: dict[str, list[str]] = {
    "compare": [],
    "configs": [],
    "conformance": ["--mixers=GRU", "--positions=NoPositions"],
    "estimate": ["--config=lm/gru", "--tokens=100"],
    "export": ["first", "--out=bundle"],
    "import-hf": ["folder"],
    "inspect": ["first", "--out=page.html"],
    "page": ["bundle", "--out=page.html"],
    "parity": ["--models=lm/gru"],
    "profile": ["--config=lm/gru", *TINY],
    "study": ["run", "order"],
    "submit": ["--config=lm/gru"],
    "sweep": ["--config=lm/gru", *TINY, "--vary=model.lr=0.1,0.2", "--sampler=grid"],
    "ui": [],
    "verify": ["folder"],
    **{verb: ["first"] for verb in ("classify", "consolidate", "generate", "predict", "promote", "resume", "test")},
    **{verb: ["first"] for verb in ("translate", "validate")},
}
"""Other arguments on a verb's command line."""

MEANT: dict[tuple[str, str], Collection[str]] = {
    ("compare", "--tokens"): ["huge"],
    ("configs", "name"): ["a file"],
    ("estimate", "--devices"): ["huge"],
    ("estimate", "--price"): ["0", "huge"],
    ("estimate", "--tokens"): ["huge"],
    ("generate", "--max-new-tokens"): ["huge"],
    ("generate", "--min-p"): ["0"],
    ("generate", "--no-repeat-ngram"): ["huge"],
    ("generate", "--prompt"): ODD,
    ("generate", "--repetition-penalty"): ["huge"],
    ("generate", "--seed"): ["0"],
    ("generate", "--temperature"): ["0", "huge"],
    ("generate", "--top-k"): ["huge"],
    ("import-hf", "--experiment"): ODD,
    ("import-hf", "--run-name"): ODD,
    ("inspect", "--text"): ODD,
    ("profile", "--steps"): ["huge"],
    ("study", "--jobs"): ["huge"],
    ("study", "--seeds"): ["huge"],
    ("submit", "--gpus"): ["huge"],
    ("submit", "--nodes"): ["huge"],
    ("submit", "--time"): ["huge"],
    ("sweep", "--devices-per-trial"): ["huge"],
    ("sweep", "--experiment"): NOT_EMPTY - {"long"},
    ("sweep", "--name"): NOT_EMPTY - {"an emoji", "two lines", "huge", "long"},
    ("sweep", "--storage"): NOT_EMPTY,
    ("verify", "--seconds"): ["huge"],
    **{("translate", name): ["0", "-1", "huge"] for name in ("--length-penalty",)},
    **{("translate", name): ["huge"] for name in ("--beams", "--no-repeat-ngram", "--n-best", "--repetition-penalty")},
    ("translate", "--prefix"): ODD,
    **{(verb.name, "--trust"): ODD for verb in VERBS},
    **{(verb.name, "--out"): ODD for verb in VERBS},  # `test_places_to_write` tries them
}
"""Values that an option accepts, or whose check needs more than a command line."""

LONG = ("export", "sweep")
"""Verbs that check most of their values only after seconds of imports and parsing."""

EACH = [
    pytest.param(verb, id=verb.name, marks=[pytest.mark.slow] if verb.name in LONG else [])
    for verb in VERBS
    if verb.arguments and verb.name != "fit"
]


@pytest.fixture(scope="module", name="folder")
def _folder(fitted: tuple[Path, Seqlab], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a finished run."""
    folder = tmp_path_factory.mktemp("odd") / "copy"
    shutil.copytree(fitted[0], folder)
    (folder / "folder").mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", EACH)
def test_what_nobody_means_is_refused_in_one_sentence(
    verb: Verb, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEQLAB_CACHE", str(folder / "cache"))
    before = sorted(folder.rglob("*"))
    wrong = []
    for argument in verb.arguments:
        name = argument.names[-1]
        if argument.settings.get("action", "append") != "append":  # a flag
            continue
        for kind in ODD.keys() - MEANT.get((verb.name, name), ()):
            typed = _typed(verb.name, name, argument.settings, ODD[kind])
            code = main(typed)
            lines = capsys.readouterr().err.splitlines()
            said = [line for line in lines if not line.endswith("loading PyTorch and Lightning")]
            if code != 2 or len(said) != 1 or not said[0].startswith("seqlab: ") or len(said[0]) > 1000:
                wrong.append(f"{name} {kind}: exit {code}, {[line[:300] for line in said]}")
            if left := sorted(path for path in folder.rglob("*") if path not in before):
                wrong.append(f"{name} {kind}: left {left}")
                before += left
    assert not wrong, "\n".join(wrong)


def _typed(verb: str, name: str, settings: dict[str, Any], value: str) -> list[str]:
    base = BASES[verb]
    if name.startswith("-"):
        return [verb, *(arg for arg in base if not arg.startswith(f"{name}=")), f"{name}={value}"]
    options = [arg for arg in base if arg.startswith("-")]
    before = ["run"] if verb == "study" and name == "name" else []
    return [verb, *options, *(["--"] if verb not in fit.TAKE_OVERRIDES else []), *before, value]
