"""Models of pairs, classes, tags and numbers from the command line: fit, score, use, and be refused elsewhere."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.conftest import Seqlab
from seqlab.cli import main

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven"]
GERMAN = dict(zip(NUMBERS, ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"], strict=True))
FEW_STEPS = ["--trainer.max_steps=6", "--trainer.val_check_interval=3", "--experiment=tiny"]
PAIRS = [f"--data.{split}=pairs.tsv" for split in ("train", "val", "test")]
TEXTS = ["--data.train=labelled.txt", "--data.val=labelled.txt"]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


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
    small = [*FEW_STEPS, "--model.model.d_model=32"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "--config", "translate/rnn", *small, *PAIRS[:2], "--run_name=pairs"]) == 0
        assert main(["fit", "--config", "classify/bag-of-words", FEW_STEPS[0], *TEXTS, "--run_name=texts"]) == 0
    return folder


@pytest.fixture(name="typed")
def _typed(folder: Path, monkeypatch: pytest.MonkeyPatch, inside: Callable[[Path], Seqlab]) -> Callable[..., str]:
    """Output of a command for these lines; its error where it is refused."""
    seqlab = inside(folder)

    def typed(*args: str, lines: str | bytes = "", code: int = 0) -> str:
        given = lines if isinstance(lines, bytes) else lines.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        done = seqlab(*args, code=code)
        return done.stderr if code else done.stdout

    return typed


Typed = Callable[..., str]


def test_translate_writes_a_line_for_each_and_beams_change_it(typed: Typed) -> None:
    lines = "one two\nseven\nthree four five\n"
    greedy = typed("translate", "pairs", lines=lines)
    assert len(greedy.splitlines()) == 3
    assert typed("translate", "pairs", "--beams", "1", lines=lines) == greedy
    assert len(typed("translate", "pairs", "--beams", "4", lines=lines).splitlines()) == 3
    best = typed("translate", "pairs", "--beams", "4", "--n-best", "2", lines=lines).splitlines()
    assert [line.split("\t")[0] for line in best] == ["1", "1", "2", "2", "3", "3"]
    forced = typed("translate", "pairs", "--prefix", "sieben", "--no-repeat-ngram", "1", lines=lines).splitlines()
    assert all(line.startswith("sieben") and line.count("sieben") == 1 for line in forced)
    assert "from 1 to the number of beams, 1; got 2" in typed("translate", "pairs", "--n-best", "2", code=2)
    alone = [typed("translate", "pairs", lines=line) for line in lines.splitlines(keepends=True)]
    assert "".join(alone) == greedy
    assert "beams must be at least 1" in typed("translate", "pairs", "--beams", "0", lines=lines, code=2)


def test_a_text_and_a_translation_are_compared_by_accuracy_and_bleu(typed: Typed) -> None:
    no_test = "pairs.tsv has no test split; name its file in data.test"
    assert no_test in typed("compare", "pairs", "pairs", "--paired", code=2)
    typed("fit", "--config", "translate/rnn", *FEW_STEPS, *PAIRS, "--model.model.d_model=32", "--run_name=tested")
    for run, unit in (("texts", "of accuracy"), ("tested", "BLEU")):
        said = typed("compare", run, run, "--paired")
        assert f"difference, {unit}" in said and f"{run} and {run}: not told apart; there is no difference" in said
    assert "differ in task, data or tokenizer" in typed("compare", "texts", "pairs", "--paired", code=2)


def test_classify_prints_a_label_and_its_probability(typed: Typed) -> None:
    rows = [line.split("\t") for line in typed("classify", "texts", lines="one two\nseven six\n").splitlines()]
    assert len(rows) == 2
    assert all(label in NUMBERS and 1 / 7 <= float(probability) <= 1 for label, probability in rows)


@pytest.mark.parametrize(
    ("verb", "run", "other"), [("translate", "pairs", "generate"), ("classify", "texts", "translate")]
)
def test_a_line_without_text_and_a_verb_of_another_model_are_refused(
    typed: Typed, verb: str, run: str, other: str
) -> None:
    assert "line 2 of the standard input is empty" in typed(verb, run, lines="one\n \n", code=2)
    refused = typed(verb, run, lines=b"one\ntwo\ncaf\xe9\n", code=2)
    assert "line 3 of the standard input: the text is not UTF-8 at byte 3; only a byte tokenizer" in refused
    said = f"seqlab: `seqlab {other}` is for another kind of model, {run} is for `seqlab {verb}`\n"
    assert typed(other, run, code=2) == said


@pytest.mark.parametrize(("name", "verb", "says"), [("pairs", "translate", "text"), ("texts", "classify", "label")])
def test_predictions_say_where_each_row_is_and_what_the_verbs_say_of_it(
    name: str, verb: str, says: str, typed: Typed, folder: Path
) -> None:
    """Predictions cover all pairs, and the texts that are split off for a test."""
    config = (
        ["translate/rnn", *PAIRS, "--model.model.d_model=32"] if name == "pairs" else ["classify/bag-of-words", *TEXTS]
    )
    typed("predict", "--config", *config, f"--ckpt_path={name}", f"--out={name}.jsonl")
    found = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    file, *numbers = {part for row in found for part in row["place"].split(", line ") if not part.isdigit()}
    assert not numbers and [row["row"] for row in found] == list(range(len(found)))
    lines = (folder / file).read_text(encoding="utf-8").splitlines()
    rows = [lines[int(row["place"].rpartition(" ")[2]) - 1] for row in found]
    assert 1 < len(rows) <= len(lines) and (rows == lines) == (name == "pairs")
    sources = (row.split("\t")[0] if name == "pairs" else row.partition(" ")[2] for row in rows)
    said = typed(verb, name, lines="".join(f"{source}\n" for source in sources)).splitlines()
    assert [row[says] for row in found] == [line.partition("\t")[0] for line in said]


@pytest.mark.parametrize(
    ("name", "verb", "other"), [("pairs", "translate", "classify"), ("texts", "classify", "generate")]
)
def test_the_bundles_write_and_say_what_the_runs_do(
    name: str, verb: str, other: str, typed: Typed, folder: Path
) -> None:
    bundle = f"bundle of {name}"
    assert f"next: seqlab {verb} {shlex.quote(bundle)}" in typed("export", name, "--out", bundle)
    lines = "one two\nseven\nthree unheard five\n"
    beams = ["--beams", "3", "--n-best", "3", "--length-penalty", "0.5"]
    for options in ([], beams) if verb == "translate" else ([],):
        assert typed(verb, bundle, *options, lines=lines) == typed(verb, name, *options, lines=lines)
    said = f"`seqlab {other}` is for another kind of model, {bundle} is for `seqlab {verb}`"
    assert said in typed(other, bundle, code=2)
    assert (folder / bundle / "source_tokenizer").is_dir() == (verb == "translate")


def test_it_learns_to_translate_word_for_word(typed: Typed, folder: Path) -> None:
    learnt = ["--config", "translate/rnn-attention", *PAIRS[:2], "--run_name=learnt", "--trainer.max_steps=300"]
    assert "next: seqlab translate learnt" in typed("fit", *learnt)
    sources, targets = zip(*(line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()), strict=True)
    assert typed("translate", "learnt", lines="\n".join(sources) + "\n").splitlines() == list(targets)


ALONE = ["--trainer.logger=false", "--trainer.default_root_dir=."]
NAMES, PLACES, OTHERS = ("Ada", "Kurt", "Emmy"), ("Rome", "Oslo"), ("goes", "to", "from", "and")


@pytest.fixture(name="seqlab")
def _seqlab(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    return inside(tmp_path)


def write_tags(folder: Path) -> None:
    """A first name begins a person of two words; places are alone, and follow each of the names."""
    lines = []
    for i in range(120):
        words = [OTHERS[i % 4], NAMES[i % 3], PLACES[i % 2], OTHERS[(i // 2) % 4], PLACES[(i // 3) % 2]]
        tags = ["O", "B-PER", "I-PER", "O", "B-LOC"]
        shown = list(zip(words, tags, strict=True))[i % 2 : 5 - i % 5 // 4]
        lines.append("\n".join(f"{word}\t{tag}" for word, tag in shown) + "\n")
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")


def test_a_tagger_learns_and_tags_lines_as_the_file_does(
    tmp_path: Path, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tags(tmp_path)
    data = ["--data.train=tagged.conll", "--data.val=tagged.conll", "--data.max_len=16", "--data.max_tokens=100"]
    small = ["--model.model.encoder.d_model=32", "--model.lr=1e-2", "--trainer.max_epochs=8"]
    done = seqlab("fit", "--config", "tag/bigru", *data, *small, *ALONE)
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab classify \1 < FILE", done.stdout)
    scores = seqlab("validate", "--config", "tag/bigru", *data, *small[:1], f"--ckpt_path={run}").stdout
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


def test_whole_numbers_are_numbers_to_a_regression(tmp_path: Path, seqlab: Seqlab) -> None:
    values = [[float((row * row + 3 * frame) % 101 + frame) for frame in range(5)] for row in range(60)]
    counts = [int(sum(frames)) for frames in values]
    parquet.write_table(pa.table({"values": values, "count": counts}), tmp_path / "counts.parquet")
    data = ["--data.train=counts.parquet", "--data.features=values", "--data.target=count"]
    fit = ["fit", "--config", "frames/bigru", *data, "--model=Regression", "--model.model=Classifier", *ALONE]
    fit += ["--trainer.fast_dev_run=true"]
    seqlab(*fit)
    said = seqlab(*fit, "--data.whole_numbers=classes", code=2).stderr
    assert "counts.parquet, row 7 has the label '285', which the train split lacks" in said
    assert said.endswith("or give data.whole_numbers numbers if it is a number to predict\n")
