"""Malformed command lines: each gives exit code 2 and one sentence, no traceback, and no run in the store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.conftest import Seqlab, write_text

NO_NUMBER = ("x", "1.5.2", "null", "[]", "{}", "-", "1e")
BELOW = ("-7", "-1000000")
TRAINER = {
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
OWN = {
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
OTHERS = {
    "generate": (["--max-new-tokens"], ["--seed"], ["--temperature"], ["--top-k"], ["--nothing"]),
    "export": (["--out", "o", "--precision"], ["--out", "o", "--taps"], ["--nothing"], []),
    "verify": (["--provider"], ["--nothing"]),
    "translate": (["--beams"], ["--n-best"], ["--length-penalty"]),
    "classify": (["--provider"],),
    "promote": (["--nothing"],),
    "resume": (["--trainer.max_steps"],),
    "test": (["--data.batch_size"], ["--nothing"]),
    "predict": (["--out"],),
    "parity": (["--models", "lm/gru", "--precisions"], ["--models"]),
    "conformance": (["--mixers"], ["--positions"]),
    "import-hf": (["--nothing"],),
    "configs": (["--nothing"],),
    "compare": (["--tokens"], ["--price"], ["--nothing"]),
    "nonsense": ([],),
}
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


def lines(fits: int, others: int) -> Iterator[list[str]]:
    """Draws `fits` command lines of `fit` and `others` of the other verbs."""
    draw = random.Random(0)
    options = [(f"trainer.{name}", value) for name, values in TRAINER.items() for value in values]
    options += [(name, value) for name, values in OWN.items() for value in values]
    draw.shuffle(options)
    # What was wrong once comes first.
    once = [("trainer.devices", "null"), ("trainer.accumulate_grad_batches", "0"), ("config", "deep.yaml")]
    once += [("ckpt_path", "text.txt")]
    for number in range(fits):
        name, value = (once + options)[number % (len(once) + len(options))]
        path = [] if name == "data.path" else ["--data.path=text.txt"]
        form = [f"--{name}={value}"] if draw.random() < 0.5 else [f"--{name}", value]
        yield ["fit", *([] if name == "config" else ["--config", "lm/gru"]), *path, *form]
    for _ in range(others):
        verb = draw.choice([*OTHERS])
        target = [] if verb in ("parity", "conformance", "compare", "configs") else [draw.choice(TARGETS)]
        given = draw.choice(OTHERS[verb])
        last = [draw.choice((*NO_NUMBER, "folder"))] if given and draw.random() < 0.7 else []
        yield [verb, *target, *given, *last]


def check(some: Iterator[list[str]], folder: Path, seqlab: Seqlab) -> None:
    for line in some:
        said = seqlab(*line, code=2).stderr.strip()
        assert said and len(said.splitlines()) <= 3, (line, said)
        assert "Traceback" not in said and said.splitlines()[-1].startswith("seqlab: "), (line, said)
        assert not list(folder.glob("mlruns/*/*/artifacts")), f"{line} left a run"
    assert not (folder / "ran").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's
@pytest.mark.parametrize(("fits", "others"), [(12, 48), pytest.param(300, 700, marks=pytest.mark.slow)])
def test_each_is_refused_in_a_sentence(
    fits: int, others: int, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    write_files(tmp_path)
    check(lines(fits, others), tmp_path, inside(tmp_path))
