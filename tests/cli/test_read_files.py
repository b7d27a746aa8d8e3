"""Inputs of public bug reports: read as what they are, or refused in one sentence with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Seqlab
from seqlab_data import LabelledTextDataModule, TaggedTextDataModule

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
pytestmark = [
    pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases beside the repository"),
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
ALONE = ["--trainer.logger=false", "--trainer.default_root_dir=.", "--trainer.fast_dev_run=true"]


@pytest.mark.parametrize("name", ["treebank.conllu", "treebank-plain.conllu"])
def test_of_conll_u_words_are_forms_and_tags_are_upos(name: str) -> None:
    path = str(CASES / name)
    data = TaggedTextDataModule(path, val=path, test=path)
    assert data.labels == ["ADJ", "DET", "NOUN", "VERB"]
    words = {word for sentence in data._examples["train"] for word in sentence.words}
    assert words == {"a", "the", "red", "hen", "fox", "naps", "digs"}


def test_a_tab_ends_a_label() -> None:
    data = LabelledTextDataModule(str(CASES / "tab-label.txt"))
    assert data.labels == ["ham", "spam"]
    lines = (CASES / "tab-label.txt").read_text().splitlines()
    texts = {example.text for some in data._examples.values() for example in some}
    assert texts == {line.split("\t")[1] for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        ("classify/bigru", "two-labels.txt", "two-labels.txt, line 1 has the label __label__short in its text; a line"),
        ("classify/bigru", "header-alone.csv", "header-alone.csv has no row below the names of its columns; give rows"),
        ("tag/bigru", "reviews.txt", "reviews.txt: 1 text is too few for three splits by content; give data.val and"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    tmp_path: Path, inside: Callable[[Path], Seqlab], config: str, name: str, message: str
) -> None:
    said = inside(tmp_path)("fit", "--config", config, f"--data.train={CASES / name}", code=2).stderr
    assert message in said.splitlines()[-1] and "Traceback" not in said


@pytest.mark.slow
def test_whole_numbers_are_numbers_to_a_regression(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    subprocess.run([sys.executable, CASES / "counts.py"], cwd=tmp_path, check=True)
    seqlab = inside(tmp_path)
    data = ["--data.train=counts.parquet", "--data.features=values", "--data.target=count"]
    task = ["--model=Regression", "--model.model=Classifier"]
    seqlab("fit", "--config", "frames/bigru", *data, *task, *ALONE)
    options = [*data, *task, *ALONE, "--data.whole_numbers=classes"]
    said = seqlab("fit", "--config", "frames/bigru", *options, code=2).stderr
    assert "counts.parquet, row 7 has the label '285', which the train split lacks" in said
    assert said.endswith("or give data.whole_numbers numbers where it is a number to predict\n")
