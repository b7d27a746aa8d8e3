"""A fit with a teacher as it is typed: what is recorded, what needs the teacher and what does not, and refusals."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, same_weights, send
from cli.hostile import CANARY, write_traps
from cli.test_translate import write_data
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run

PUPIL = ["fit", "--config=lm/gru", *TINY, "--model=Distillation"]


@pytest.fixture(name="beside_teacher")
def _beside_teacher(theirs: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    """The command in this process, in a folder with a copy of the run `first`."""
    return inside(theirs)


@pytest.mark.slow
def test_a_stopped_fit_goes_on_bit_for_bit(beside_teacher: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bf16-mixed, with accumulation and dropout."""
    options = ["--model.model.dropout=0.2", "--trainer.max_steps=5"]
    options += ["--trainer.precision=bf16-mixed", "--trainer.accumulate_grad_batches=2"]
    beside_teacher(*PUPIL, "--model.teacher=first", *options, "--run_name=whole")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGINT, 5)
        beside_teacher(*PUPIL, "--model.teacher=first", *options, "--run_name=stopped", code=130)
    beside_teacher("resume", "stopped")
    assert same_weights("stopped", "whole")
    beside_teacher("fit", "--config=lm/gru", *TINY, *options, "--run_name=alone")
    assert not same_weights("whole", "alone"), "the teacher teaches"
    costs = ("num_params", "num_flops", "state_size")
    assert [find_run("alone").metrics[cost] for cost in costs] == [find_run("whole").metrics[cost] for cost in costs]


def test_only_a_fit_needs_the_teacher(beside_teacher: Seqlab) -> None:
    """The config has the teacher's id, and its tokenizer is found. Later its checkpoints are deleted."""
    teacher = find_run("first")
    beside_teacher(*PUPIL, "--model.teacher=first", "--data.tokenizer=StoredTokenizer", "--run_name=pupil")
    run = find_run("pupil")
    assert run.params["model.init_args.teacher"] == run.config["model"]["init_args"]["teacher"] == teacher.id
    assert run.params["model.init_args.lr"] == "0.004", "options of the config remain"

    shutil.rmtree(teacher.artifacts / "checkpoints")
    assert "test/loss" in beside_teacher("test", "pupil", "--trainer.limit_test_batches=1").stdout
    beside_teacher("generate", "pupil", "--prompt=the", "--max-new-tokens=2")
    beside_teacher("export", "pupil", "--out=bundle")
    assert "pupil" in beside_teacher("compare", "--experiment=tiny").stdout
    (line,) = beside_teacher("resume", "pupil", "--trainer.max_steps=7", code=2).stderr.strip().splitlines()
    assert teacher.id in line and "has no checkpoint" in line


def test_a_config_that_names_a_teacher_opens_nothing(beside_teacher: Seqlab, theirs: Path) -> None:
    """A stranger's run names a teacher whose config would import a module: to open the run does not read the teacher,
    and to train it is a refusal."""
    beside_teacher(*PUPIL, "--model.teacher=first", "--run_name=pupil")
    write_traps(theirs)
    run, (first, pupil) = find_run("pupil"), (find_run(name).last_checkpoint for name in ("first", "pupil"))
    assert first is not None and pupil is not None
    hostile = read_checkpoint(first)
    hostile["seqlab"]["config"]["model"]["init_args"]["model"]["init_args"]["mixer"] = {"class_path": "evil.Evil"}
    AtomicCheckpointIO().save_checkpoint(hostile, theirs / "hostile.ckpt")
    stored = read_checkpoint(pupil)
    stored["seqlab"]["config"]["model"]["init_args"]["teacher"] = str(theirs / "hostile.ckpt")
    AtomicCheckpointIO().save_checkpoint(stored, theirs / "theirs.ckpt")
    load_run(str(theirs / "theirs.ckpt"))
    beside_teacher("validate", str(theirs / "theirs.ckpt"), "--trainer.limit_val_batches=1")
    config = run.artifacts / "config.yaml"
    config.write_text(config.read_text().replace(find_run("first").id, str(theirs / "hostile.ckpt")))
    said = beside_teacher("resume", "pupil", "--trainer.max_steps=6", code=2).stderr
    assert "evil.Evil" in said
    assert not (theirs / CANARY).exists() and "evil" not in sys.modules


def test_teachers_that_are_none(beside_teacher: Seqlab, theirs: Path) -> None:
    """One sentence, and no run."""
    write_data(theirs)
    classify = ["fit", "--config=classify/bag-of-words", "--data.train=labelled.txt", "--data.val=labelled.txt"]
    beside_teacher(*classify, "--trainer.max_steps=1", "--experiment=tiny", "--run_name=classifier")
    (theirs / "other.txt").write_text("zebras and quails\n" * 60)
    runs = {path.name for path in theirs.glob("mlruns/*/*")}
    for options, said in (
        ([], "model lacks teacher"),
        (["--model.teacher=1e5"], "no run has the id, the name or the checkpoint '1e5'"),
        (["--model.teacher=classifier"], "is a BagOfWords; accepted: a language model"),
        (["--model.teacher=first", "--data.path=other.txt"], "was trained with another vocabulary: the vocabulary had"),
        (["--model.teacher=first", "--model.share=2"], "share must be from 0 to 1, got 2.0"),
        (["--model.teacher=first", "--model.temperature=0"], "temperature must be above 0, got 0.0"),
    ):
        (line,) = beside_teacher(*PUPIL, *options, code=2).stderr.strip().splitlines()
        assert said in line and len(line) < 500
    assert {path.name for path in theirs.glob("mlruns/*/*")} == runs
