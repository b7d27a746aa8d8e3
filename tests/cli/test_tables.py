"""Words with tags, texts with labels and tables of numbers from the command line: learnt from, or refused by name."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.conftest import Seqlab
from seqlab_data import LabelledTextDataModule, TaggedTextDataModule

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
"""Inputs of public bug reports."""
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases beside the repository")
pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
ALONE = ["--trainer.logger=false", "--trainer.default_root_dir=."]
ONCE = "--trainer.fast_dev_run=true"
NAMES, PLACES, OTHERS = ("Ada", "Kurt", "Emmy"), ("Rome", "Oslo"), ("goes", "to", "from", "and")


@pytest.fixture(name="seqlab")
def _seqlab(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    return inside(tmp_path)


@needs_cases
@pytest.mark.parametrize("name", ["treebank.conllu", "treebank-plain.conllu"])
def test_of_conll_u_words_are_forms_and_tags_are_upos(name: str) -> None:
    path = str(CASES / name)
    data = TaggedTextDataModule(path, val=path, test=path)
    assert data.labels == ["ADJ", "DET", "NOUN", "VERB"]
    words = {word for sentence in data._examples["train"] for word in sentence.words}
    assert words == {"a", "the", "red", "hen", "fox", "naps", "digs"}


@needs_cases
def test_a_tab_ends_a_label() -> None:
    data = LabelledTextDataModule(str(CASES / "tab-label.txt"))
    assert data.labels == ["ham", "spam"]
    lines = (CASES / "tab-label.txt").read_text().splitlines()
    texts = {example.text for some in data._examples.values() for example in some}
    assert texts == {line.split("\t")[1] for line in lines}


def write_tags(folder: Path) -> None:
    """A first name begins a person of two words; places are alone, and follow each of the names."""
    lines = []
    for i in range(120):
        words = [OTHERS[i % 4], NAMES[i % 3], PLACES[i % 2], OTHERS[(i // 2) % 4], PLACES[(i // 3) % 2]]
        tags = ["O", "B-PER", "I-PER", "O", "B-LOC"]
        shown = list(zip(words, tags, strict=True))[i % 2 : 5 - i % 5 // 4]
        lines.append("\n".join(f"{word}\t{tag}" for word, tag in shown) + "\n")
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("config", ["tag/bigru", "tag/transformer"])
def test_a_tagger_learns_and_tags_lines_as_the_file_does(
    config: str, tmp_path: Path, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tags(tmp_path)
    data = ["--data.train=tagged.conll", "--data.val=tagged.conll", "--data.max_len=16", "--data.max_tokens=100"]
    small = ["--model.model.encoder.d_model=32", "--model.lr=1e-2", "--trainer.max_epochs=8"]
    done = seqlab("fit", "--config", config, *data, *small, *ALONE)
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab classify \1 < FILE", done.stdout)
    scores = seqlab("validate", "--config", config, *data, *small[:1], f"--ckpt_path={run}").stdout
    assert float(re.findall(r"val/f1\W+([\d.]+)", scores)[0]) > 0.95
    # Other sentences are read by the words of the run, "bald" being none of them.
    (tmp_path / "few.conll").write_text("Ada\tB-PER\nOslo\tI-PER\nbald\tO\n\nto\tO\nRome\tB-LOC\n", encoding="utf-8")
    few = [f"--data.{split}=few.conll" for split in ("train", "val", "test")]
    assert "val/f1" in seqlab("validate", run, *few).stdout
    # Rome is part of a name after Emmy and a place elsewhere: what is before a word decides.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"goes Emmy Rome to Rome\nAda Oslo and Oslo\n")))
    tagged = "goes\tO\nEmmy\tB-PER\nRome\tI-PER\nto\tO\nRome\tB-LOC\n\nAda\tB-PER\nOslo\tI-PER\nand\tO\nOslo\tB-LOC\n\n"
    assert seqlab("classify", run).stdout == tagged
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Ada\n \n")))
    assert "line 2 of the standard input is empty" in seqlab("classify", run, code=2).stderr


@pytest.mark.slow
def test_frames_are_labelled_by_the_frame_after_each(tmp_path: Path, seqlab: Seqlab) -> None:
    """Label k of a frame: the next frame's feature k is positive; the last frame has none."""
    draw = np.random.default_rng(1)
    inputs = [draw.normal(size=(draw.integers(2, 12), 3)) for _ in range(300)]
    targets = [np.append(some[1:] > 0, [[False] * 3], axis=0).astype(int).tolist() for some in inputs]
    parquet.write_table(pa.table({"x": [some.tolist() for some in inputs], "y": targets}), tmp_path / "x.parquet")
    data = ["--data.train=x.parquet", "--data.features=x", "--data.target=y"]
    data += ["--data.max_len=12", "--data.max_tokens=200"]
    small = ["--model.model.encoder.d_model=32", "--model.model.encoder.num_layers=1", "--model.lr=1e-2"]
    done = seqlab("fit", "--config", "frames/bigru", *data, *small, "--trainer.max_epochs=25", *ALONE)
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab test \1", done.stdout)
    assert done.stderr.rstrip().endswith(" tokens/s")  # of the meter that the run has
    scores = seqlab("test", "--config", "frames/bigru", *data, *small, f"--ckpt_path={run}").stdout
    assert float(re.findall(r"test/f1\W+([\d.]+)", scores)[0]) > 0.9  # a half of the labels hold
    proven = seqlab("export", run, "--out", "bundle").stdout
    assert "encoder" in proven and "likeliest" not in proven  # any of the labels may hold


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "data", "message"),
    [
        ("tag/bigru", "bad.conll", "seqlab: bad.conll, line 2 has one column, 'b'"),
        ("tag/bigru", "tagged.conll --data.tokenizer=CharTokenizer", "WordTokenizer"),
        ("frames/bigru", "classes.npz", "needs data that tells its num_labels, this tells none"),
        ("image/pixels-gru", "numbers.npz", "classification needs data that tells its num_classes, this tells none"),
        ("synthetic/adding", "frames.npz", "regression takes a number for each sequence, but this data has classes"),
    ],
)
def test_data_that_a_task_does_not_take_are_refused(
    config: str, data: str, message: str, tmp_path: Path, seqlab: Seqlab
) -> None:
    write_tags(tmp_path)
    (tmp_path / "bad.conll").write_text("a O\nb\n", encoding="utf-8")
    inputs = np.random.default_rng(0).normal(size=(60, 4, 2))
    for name, targets in (("classes", inputs[:, 0, 0] > 0), ("numbers", inputs[:, 0, 0]), ("frames", inputs > 0)):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, targets=targets)
    table = ["--data=TableDataModule", ONCE] if ".npz" in data else [f"--data.val={data.split()[0]}"]
    said = seqlab("fit", "--config", config, *table, *f"--data.train={data}".split(), code=2).stderr
    assert message in said.splitlines()[-1] and "Traceback" not in said


@needs_cases
@pytest.mark.slow
def test_whole_numbers_are_numbers_to_a_regression(tmp_path: Path, seqlab: Seqlab) -> None:
    subprocess.run([sys.executable, CASES / "counts.py"], cwd=tmp_path, check=True)
    data = ["--data.train=counts.parquet", "--data.features=values", "--data.target=count"]
    fit = ["fit", "--config", "frames/bigru", *data, "--model=Regression", "--model.model=Classifier", *ALONE, ONCE]
    seqlab(*fit)
    said = seqlab(*fit, "--data.whole_numbers=classes", code=2).stderr
    assert "counts.parquet, row 7 has the label '285', which the train split lacks" in said
    assert said.endswith("or give data.whole_numbers numbers where it is a number to predict\n")
