"""A model with a source, and a classifier, from the command line: fit, score, use, and be refused elsewhere."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
import warnings
from pathlib import Path

import pytest

from cli.conftest import Seqlab, command
from seqlab.cli import main

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven"]
GERMAN = dict(zip(NUMBERS, ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"], strict=True))
FEW_STEPS = ["--trainer.max_steps=6", "--trainer.val_check_interval=3", "--experiment=tiny"]


def write_data(folder: Path) -> None:
    """Pairs that translate word for word, and texts whose first word is their class."""
    texts = [" ".join(NUMBERS[(i * k + j) % 7] for j in range(2 + i % 3)) for i in range(1, 30) for k in (1, 3)]
    pairs = [f"{text}\t{' '.join(GERMAN[word] for word in text.split())}" for text in texts]
    labelled = [f"{text.split()[0]} {text}" for text in texts]
    for name, lines in (("pairs.tsv", pairs), ("labelled.txt", labelled)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run of each kind."""
    folder = tmp_path_factory.mktemp("pairs")
    write_data(folder)
    pairs = ["--data.train=pairs.tsv", "--data.val=pairs.tsv", "--model.model.d_model=32", "--run_name=pairs"]
    done = command(folder)("fit", "--config", "translate/rnn", *FEW_STEPS, *pairs)
    assert "next: seqlab translate pairs" in done.stdout
    texts = ["--data.train=labelled.txt", "--data.val=labelled.txt", "--run_name=texts"]
    with contextlib.chdir(folder), warnings.catch_warnings(action="ignore"):
        assert main(["fit", "--config", "classify/bag-of-words", *FEW_STEPS[:1], *texts, FEW_STEPS[2]]) == 0
    return folder


@pytest.fixture(name="typed")
def _typed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Seqlab:
    """A command in this process, with lines for its standard input."""
    monkeypatch.chdir(folder)

    def typed(*args: str, lines: str | bytes = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        given = lines if isinstance(lines, bytes) else lines.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert main(list(args)) == code
        return subprocess.CompletedProcess(args, code, *capsys.readouterr())

    return typed


@pytest.mark.slow
def test_translate_writes_a_line_for_each_and_beams_change_it(typed: Seqlab) -> None:
    lines = "one two\nseven\nthree four five\n"
    greedy = typed("translate", "pairs", lines=lines).stdout
    assert len(greedy.splitlines()) == 3
    assert typed("translate", "pairs", "--beams", "1", lines=lines).stdout == greedy
    assert len(typed("translate", "pairs", "--beams", "4", lines=lines).stdout.splitlines()) == 3
    best = typed("translate", "pairs", "--beams", "4", "--n-best", "2", lines=lines).stdout.splitlines()
    assert [line.split("\t")[0] for line in best] == ["1", "1", "2", "2", "3", "3"]
    forced = typed(
        "translate", "pairs", "--prefix", "sieben", "--no-repeat-ngram", "1", lines=lines
    ).stdout.splitlines()
    assert all(line.startswith("sieben") and line.count("sieben") == 1 for line in forced)
    assert "from 1 to the number of beams, 1; got 2" in typed("translate", "pairs", "--n-best", "2", code=2).stderr
    alone = [typed("translate", "pairs", lines=line).stdout for line in lines.splitlines(keepends=True)]
    assert "".join(alone) == greedy
    assert "beams must be at least 1" in typed("translate", "pairs", "--beams", "0", lines=lines, code=2).stderr


@pytest.mark.slow
def test_a_text_and_a_translation_are_compared_by_accuracy_and_bleu(typed: Seqlab) -> None:
    assert (
        "pairs.tsv has no test split; name its file in data.test"
        in typed("compare", "pairs", "pairs", "--paired", code=2).stderr
    )
    data = [f"--data.{split}=pairs.tsv" for split in ("train", "val", "test")]
    typed("fit", "--config", "translate/rnn", *FEW_STEPS, *data, "--model.model.d_model=32", "--run_name=tested")
    for run, unit in (("texts", "of accuracy"), ("tested", "BLEU")):
        said = typed("compare", run, run, "--paired").stdout
        assert f"difference, {unit}" in said and f"{run} and {run}: not told apart; there is no difference" in said
    assert "are not of one task, data and tokenizer" in typed("compare", "texts", "pairs", "--paired", code=2).stderr


@pytest.mark.slow
def test_classify_prints_a_label_and_its_probability(typed: Seqlab) -> None:
    rows = [line.split("\t") for line in typed("classify", "texts", lines="one two\nseven six\n").stdout.splitlines()]
    assert len(rows) == 2
    assert all(label in NUMBERS and 1 / 7 <= float(probability) <= 1 for label, probability in rows)


@pytest.mark.slow
@pytest.mark.parametrize("verb, run", [("translate", "pairs"), ("classify", "texts")])
def test_a_line_without_text_is_refused(typed: Seqlab, verb: str, run: str) -> None:
    assert "line 2 of the standard input is empty" in typed(verb, run, lines="one\n \n", code=2).stderr
    refused = typed(verb, run, lines=b"one\ntwo\ncaf\xe9\n", code=2).stderr
    assert "line 3 of the standard input: the text is not UTF-8 at byte 3; only a byte tokenizer" in refused


@pytest.mark.slow
def test_predictions_say_where_each_row_is_and_what_the_verbs_say_of_it(typed: Seqlab, folder: Path) -> None:
    """Predictions cover all pairs, and the texts that are split off for a test."""
    pairs = ["translate/rnn", *(f"--data.{split}=pairs.tsv" for split in ("train", "val", "test"))]
    texts = ["classify/bag-of-words", "--data.train=labelled.txt", "--data.val=labelled.txt"]
    for name, verb, says, config in (
        ("pairs", "translate", "text", [*pairs, "--model.model.d_model=32"]),
        ("texts", "classify", "label", texts),
    ):
        typed("predict", "--config", *config, f"--ckpt_path={name}", f"--out={name}.jsonl")
        found = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        file, *numbers = {part for row in found for part in row["place"].split(", line ") if not part.isdigit()}
        assert not numbers and [row["row"] for row in found] == list(range(len(found)))
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        rows = [lines[int(row["place"].rpartition(" ")[2]) - 1] for row in found]
        assert 1 < len(rows) <= len(lines) and (rows == lines) == (name == "pairs")
        sources = (row.split("\t")[0] if name == "pairs" else row.partition(" ")[2] for row in rows)
        said = typed(verb, name, lines="".join(f"{source}\n" for source in sources)).stdout.splitlines()
        assert [row[says] for row in found] == [line.partition("\t")[0] for line in said]


@pytest.mark.slow
def test_a_verb_for_another_model_is_refused(typed: Seqlab) -> None:
    said = "seqlab: `seqlab {}` is for another kind of model, {} is for `seqlab {}`\n"
    assert typed("generate", "pairs", code=2).stderr == said.format("generate", "pairs", "translate")
    assert typed("translate", "texts", code=2).stderr == said.format("translate", "texts", "classify")


@pytest.mark.slow
def test_the_bundles_write_and_say_what_the_runs_do(typed: Seqlab, folder: Path) -> None:
    for name, verb in (("pairs", "translate"), ("texts", "classify")):
        bundle = f"bundle of {name}"
        assert f"next: seqlab {verb} {shlex.quote(bundle)}" in typed("export", name, "--out", bundle).stdout
        lines = "one two\nseven\nthree unheard five\n"
        assert typed(verb, bundle, lines=lines).stdout == typed(verb, name, lines=lines).stdout
    beams = ["--beams", "3", "--n-best", "3", "--length-penalty", "0.5"]
    found, expected = (
        typed("translate", name, *beams, lines="one two\n").stdout for name in ("bundle of pairs", "pairs")
    )
    assert found == expected
    for name, verb, other in (("pairs", "translate", "classify"), ("texts", "classify", "generate")):
        said = f"`seqlab {other}` is for another kind of model, bundle of {name} is for `seqlab {verb}`"
        assert said in typed(other, f"bundle of {name}", code=2).stderr
    assert (folder / "bundle of pairs" / "source_tokenizer").is_dir()


@pytest.mark.slow
def test_it_learns_to_translate_word_for_word(tmp_path: Path, typed: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    pairs = ["--data.train=pairs.tsv", "--data.val=pairs.tsv", "--run_name=learnt", "--trainer.max_steps=300"]
    command(tmp_path)("fit", "--config", "translate/rnn-attention", *pairs)
    sources, targets = zip(*(line.split("\t") for line in Path("pairs.tsv").read_text().splitlines()), strict=True)
    assert typed("translate", "learnt", lines="\n".join(sources) + "\n").stdout.splitlines() == list(targets)
