"""Options of every verb with values that nobody means: one sentence, exit code 2, and nothing written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import TINY, Seqlab, write_text
from seqlab.cli import VERBS, fit, main
from seqlab.cli.verb import Verb
from seqlab.tracking.runs import find_run

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
    "serve": ["first"],
    "study": ["run", "order"],
    "submit": ["--config=lm/gru"],
    "sweep": ["--config=lm/gru", *TINY, "--vary=model.lr=0.1,0.2", "--sampler=grid"],
    "ui": [],
    "verify": ["folder"],
    **{verb: ["first"] for verb in ("classify", "consolidate", "generate", "predict", "promote", "resume", "test")},
    **{verb: ["first"] for verb in ("translate", "validate")},
}
"""Other arguments on a verb's command line."""

HUGE = {
    "compare": "tokens",
    "estimate": "devices price tokens",
    "generate": "max-new-tokens no-repeat-ngram repetition-penalty temperature top-k",
    "profile": "steps",
    "study": "jobs seeds",
    "submit": "gpus nodes time",
    "sweep": "devices-per-trial",
    "translate": "beams length-penalty n-best no-repeat-ngram repetition-penalty",
    "verify": "seconds",
}
MEANT: dict[tuple[str, str], Collection[str]] = {
    **{(verb, f"--{name}"): ["huge"] for verb, names in HUGE.items() for name in names.split()},
    ("configs", "name"): ["a file"],
    ("estimate", "--price"): ["0", "huge"],
    ("generate", "--min-p"): ["0"],
    ("generate", "--prompt"): ODD,
    ("generate", "--seed"): ["0"],
    ("generate", "--temperature"): ["0", "huge"],
    ("import-hf", "--experiment"): ODD,
    ("import-hf", "--run-name"): ODD,
    ("inspect", "--text"): ODD,
    ("serve", "--host"): ["0"],
    ("serve", "--port"): ["0"],
    ("sweep", "--experiment"): NOT_EMPTY - {"long"},
    ("sweep", "--name"): NOT_EMPTY - {"an emoji", "two lines", "huge", "long"},
    ("sweep", "--storage"): NOT_EMPTY,
    ("translate", "--length-penalty"): ["0", "-1", "huge"],
    ("translate", "--prefix"): ODD,
    **{(verb.name, "--trust"): ODD for verb in VERBS},
    **{(verb.name, "--out"): ODD for verb in VERBS},  # `test_places_to_write` tries them
}
"""Values that an option accepts, or whose check needs more than a command line."""


@pytest.fixture(scope="module", name="folder")
def _folder(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a finished run."""
    folder = tmp_path_factory.mktemp("odd") / "copy"
    shutil.copytree(fitted, folder)
    (folder / "folder").mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb.arguments and verb.name != "fit"], ids=lambda v: v.name
)
def test_what_nobody_means_is_refused_in_one_sentence(
    verb: Verb, folder: Path, inside: Callable[[Path], Seqlab], capsys: pytest.CaptureFixture[str]
) -> None:
    inside(folder)
    before = sorted(folder.rglob("*"))
    named_0 = find_run("first").id.startswith("0")  # the unique beginning of a run's id is one
    wrong = []
    for argument in verb.arguments:
        name = argument.names[-1]
        if argument.settings.get("action", "append") != "append":  # a flag
            continue
        for kind in ODD.keys() - MEANT.get((verb.name, name), ()) - ({"0"} if named_0 else set()):
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


NO_NUMBER = ("x", "1.5.2", "null", "[]", "{}", "-", "1e")
BELOW = ("-7", "-1000000")
TRAINER: dict[str, tuple[str, ...]] = {
    "accumulate_grad_batches": ("0", *BELOW, *NO_NUMBER),
    "check_val_every_n_epoch": ("0", *BELOW, "x"),
    "devices": ("null", "0", "-3", "x", "[]", "{}"),
    "gradient_clip_val": ("-1", "x", "[1]"),
    "limit_train_batches": ("-1", "1.5", "x"),
    "limit_val_batches": ("-1", "1.5", "x"),
    "log_every_n_steps": ("-1", "x", "[]"),
    "max_epochs": ("-7", "x", "1.5"),
    "max_steps": (*BELOW, *NO_NUMBER),
    "max_time": ("banana",),
    "num_nodes": ("0", *BELOW, *NO_NUMBER),
    "num_sanity_val_steps": ("-5", "x"),
    "precision": ("12", "x"),
    "strategy": ("magic", "null"),
    "accelerator": ("abacus", "null"),
    "callbacks": ("Nope", "[1]"),
}
OWN: dict[str, tuple[str, ...]] = {
    "checkpoint_every": ("0", "null", "x"),
    "seed_everything": ("-1", "99999999999999", "x"),
    "init_from": ("nobody", "folder", "text.txt"),
    "ckpt_path": ("nobody", "folder", "text.txt"),
    "config": ("", "nobody", "folder", "deep.yaml", "binary.yaml", "number.yaml", "list.yaml", "tag.yaml", "tab.yaml"),
    "data.path": ("folder", "binary.yaml", "nobody.txt"),
    "data.batch_size": ("0", "null", "x"),
    "data.encoding": ("klingon", "null"),
    "data.split": ("[1,2]", "x"),
    "model": ("null", "Nothing", "Classification"),
    "model.lr": ("-1", "null", "x"),
    "model.model.d_model": ("0", "-4", "null", "x"),
    "model.model.mixer": ("[]", "Nothing", "os.system", "{class_path: 3}"),
    "trainer": ("null", "x"),
    "nothing": ("1",),
}
WRONG = {f"trainer.{name}": values for name, values in TRAINER.items()} | OWN
TARGETS = ("nobody", "folder", "text.txt", "binary.yaml", "deep.yaml", "bundle", "")


def write_files(folder: Path) -> None:
    write_text(folder)
    (folder / "folder").mkdir()
    (folder / "bundle").mkdir()
    (folder / "bundle" / "manifest.json").write_text("{")
    (folder / "deep.yaml").write_text("".join(" " * depth + "a:\n" for depth in range(2982)))
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    (folder / "number.yaml").write_text("3\n")
    (folder / "list.yaml").write_text("- a\n- b\n")
    (folder / "tag.yaml").write_text("a: !!python/object/apply:os.system ['touch ran']\n")
    (folder / "tab.yaml").write_text("a:\n\tb: 1\n")


@pytest.fixture(name="refused")
def _refused(tmp_path: Path, quick: Seqlab) -> Callable[..., None]:
    """Checks that a command line in a folder of odd files ends with a sentence, and leaves no run."""
    write_files(tmp_path)

    def check(*line: str) -> None:
        said = quick(*line, code=2).stderr.strip()
        assert said and len(said.splitlines()) <= 3, (line, said)
        assert "Traceback" not in said and said.splitlines()[-1].startswith("seqlab: "), (line, said)
        assert not list(tmp_path.glob("mlruns/*/*/artifacts")) and not (tmp_path / "ran").exists(), line

    return check


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's
@pytest.mark.parametrize("name", WRONG)
def test_a_fit_refuses_each_value(name: str, refused: Callable[..., None]) -> None:
    config = [] if name == "config" else ["--config", "lm/gru"]
    path = [] if name == "data.path" else ["--data.path=text.txt"]
    for number, value in enumerate(WRONG[name]):
        refused("fit", *config, *path, *([f"--{name}", value] if number % 2 else [f"--{name}={value}"]))


def test_what_is_no_verb_is_refused(refused: Callable[..., None]) -> None:
    for target in TARGETS:
        refused("nonsense", target)
    refused()
