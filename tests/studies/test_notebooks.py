"""Notebooks: of each study, and the worksheet with its checker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from seqlab.cli import main
from seqlab.study.notebook import notebook
from seqlab.study.rules import Verdict
from seqlab.study.study import Measured
from seqlab_studies.book import STUDIES
from seqlab_studies.exercises import EXERCISES, check


def weights(*looked_at: int) -> list[list[float]]:
    """Rows that look at these."""
    return [
        [0.9 if column == at else 0.1 / (len(looked_at) - 1) for column in range(len(looked_at))] for at in looked_at
    ]


def attention(q: Any, k: Any, v: Any, scale: float = 0.5) -> Any:
    scores = np.exp(q @ k.T * scale)
    return scores / scores.sum(1, keepdims=True) @ v


ANSWERS: dict[str, tuple[Any, Any]] = {
    "dependency": ("Animal", "street"),
    "connections": (lambda n: n * n, lambda n: n * (n - 1)),
    "relevance": ([0.1, 0.4, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], [0.2] * 8),
    "roles": (
        {"looks for": "query", "is found by": "key", "hands over": "value"},
        {"looks for": "key", "is found by": "query", "hands over": "value"},
    ),
    "divisor": (lambda d_k: d_k**0.5, lambda d_k: d_k),
    "heads": ((8, 512), (8, 64)),
    "encodings": ({"sines", "rotary"}, {"sines", "learned", "rotary"}),
    "sines": ((0.91, -0.42, 0.02, 1.0), (0.91, 0.42, 0.02, 1.0)),
    "layer": (
        ["attention", "add and norm", "feed-forward", "add and norm"],
        ["feed-forward", "add and norm", "attention", "add and norm"],
    ),
    "sizes": (lambda d: 12 * d * d, lambda d: 8 * d * d),
    "steps": ({"recurrent": 100, "attention": 1}, {"recurrent": 100, "attention": 100}),
    "attention": (attention, lambda q, k, v: attention(q, k, v, scale=1.0)),
    "treats": (weights(0, 0, 1), weights(0, 0, 2)),
    "two heads": ((weights(0, 0, 1, 2, 3), weights(0, 0, 0, 0, 2)), (weights(0, 0, 1, 2, 3),) * 2),
}


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_is_right_or_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = ANSWERS[name]
    assert check(name, right) is True and check(name, wrong) is False
    blank: Callable[..., Any] | Any = (lambda *_: ...) if callable(right) else ...
    assert check(name, blank) is None and check(name, 3j) is not True
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{name}: right." and said[2] == f"{name}: fill in the blank."


def test_every_exercise_is_on_the_worksheet() -> None:
    text = (Path(__file__).parents[2] / "studies/seqlab_studies/worksheet.md").read_text()
    assert re.findall(r'check\("([^"]+)"', text) == list(EXERCISES) == list(ANSWERS)
    with pytest.raises(ValueError, match="there is no exercise 'sums'; accepted: dependency"):
        check("sums", 1)


@pytest.mark.slow
def test_the_worksheet_is_a_notebook_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study", "notebook", "worksheet", "--out", "class"]) == 0
    assert executed(Path("class/worksheet.ipynb")).count("fill in the blank.") == len(EXERCISES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worked-numbers", "state-tracking"])
def test_the_notebook_of_a_study_runs_and_its_break_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without fits and one with them: others differ in what test_studies.py runs of each."""
    monkeypatch.chdir(tmp_path)
    assert main(["study", "notebook", name]) == 0
    said = executed(Path(f"study-pages/{name}.ipynb"))
    for claim in STUDIES[name].claims:
        assert f"\n{claim.key}: invalid: " in f"\n{said}"


@pytest.mark.parametrize("name", STUDIES)
def test_the_notebook_of_each_study_is_valid_and_has_its_claims(name: str) -> None:
    study = STUDIES[name]
    read = nbformat.reads(notebook(study), as_version=4)
    nbformat.validate(read)
    codes = [compile(cell.source, name, "exec").co_names for cell in read.cells if cell.cell_type == "code"]
    assert sum("claims" in used and "figure" in used for used in codes) == len(study.claims)
    texts = "".join(cell.source for cell in read.cells)
    assert all(f"## {claim.says}" in texts for claim in study.claims)


@pytest.mark.parametrize("name", STUDIES)
def test_a_measure_that_gives_all_cases_one_number_is_found_out(name: str) -> None:
    study = STUDIES[name]
    cases = {case for claim in study.claims for case in (*claim.cases, *(one.case for one in claim.controls))}
    for same in (-5.0, 0.0, 0.5, 1.0, 90.0, 1e4):
        found = study.judge([Measured(dict.fromkeys(cases, same), [])])
        assert {judged.verdict for judged in found.values()} == {Verdict.INVALID}, same


def executed(path: Path) -> str:
    """The output that a notebook's cells print."""
    read = nbformat.read(path, as_version=4)
    nbformat.validate(read)
    NotebookClient(read, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in read.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")
