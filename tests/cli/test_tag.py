"""A tagger from the command line: fit, score, tag lines, and be refused."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Seqlab

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
NAMES, PLACES, OTHERS = ("Ada", "Kurt", "Emmy"), ("Rome", "Oslo"), ("goes", "to", "from", "and")


def write_data(folder: Path) -> None:
    """A first name begins a person of two words; places are alone, and follow each of the names."""
    lines = []
    for i in range(120):
        words = [OTHERS[i % 4], NAMES[i % 3], PLACES[i % 2], OTHERS[(i // 2) % 4], PLACES[(i // 3) % 2]]
        tags = ["O", "B-PER", "I-PER", "O", "B-LOC"]
        shown = list(zip(words, tags, strict=True))[i % 2 : 5 - i % 5 // 4]
        lines.append("\n".join(f"{word}\t{tag}" for word, tag in shown) + "\n")
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("config", [pytest.param("tag/bigru", marks=pytest.mark.slow), "tag/transformer"])
def test_it_learns_and_tags_lines_as_the_file_does(
    config: str, tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path)
    seqlab = inside(tmp_path)
    data = ["--data.train=tagged.conll", "--data.val=tagged.conll", "--data.max_len=16", "--data.max_tokens=100"]
    small = ["--model.model.encoder.d_model=32", "--model.lr=1e-2", "--trainer.max_epochs=8"]
    done = seqlab("fit", "--config", config, *data, *small, "--trainer.logger=false", "--trainer.default_root_dir=.")
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab classify \1 < FILE", done.stdout)
    scores = seqlab("validate", "--config", config, *data, *small[:1], f"--ckpt_path={run}").stdout
    f1 = float(re.search(r"val/f1\W+([\d.]+)", scores)[1])  # type: ignore[index]
    assert f1 > 0.95
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
def test_bad_data_is_told_in_one_sentence(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    (tmp_path / "tagged.conll").write_text("a O\nb\n", encoding="utf-8")
    data = ["--data.train=tagged.conll", "--data.val=tagged.conll"]
    said = inside(tmp_path)("fit", "--config", "tag/bigru", *data, code=2).stderr
    assert said.splitlines()[-1].startswith("seqlab: tagged.conll, line 2 has one column, 'b'")
    options = [*data, "--data.tokenizer=CharTokenizer"]
    said = inside(tmp_path)("fit", "--config", "tag/bigru", *options, code=2).stderr
    assert "CharTokenizer" in said and "WordTokenizer" in said
