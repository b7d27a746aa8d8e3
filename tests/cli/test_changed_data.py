"""Data that changed before a resume: what changed, in one sentence, and the checkpoint is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.conftest import TINY, Seqlab, write_text
from seqlab.trained.same_vocabulary import check_vocabulary
from seqlab_data.tokenizers import CharTokenizer


@pytest.mark.slow
def test_a_resume_says_which_characters_are_new(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    write_text(tmp_path)
    quick, text = inside(tmp_path), tmp_path / "text.txt"
    quick("fit", "--config", "lm/gru", *TINY, "--run_name=first")
    (last,) = tmp_path.rglob("last.ckpt")
    before = last.read_bytes()
    written = text.read_text()
    text.write_text(f"é ß\n{written}")
    (said,) = quick("resume", "first", "--trainer.max_steps=6", code=2).stderr.splitlines()[-1:]
    assert said.startswith("seqlab: ") and "the data have changed since the checkpoint: the vocabulary had " in said
    assert "(new: 'ß', 'é')" in said
    text.write_text(f"{written}the\n")
    (said,) = quick("resume", "first", "--trainer.max_steps=6", code=2).stderr.splitlines()[-1:]
    assert said.startswith("seqlab: ") and "the checkpoint was trained with data " in said
    assert last.read_bytes() == before
    text.write_text(written)
    quick("resume", "first", "--trainer.max_steps=6")


STORED: dict[str, Any] = {
    "tokenizer": CharTokenizer("ab").to_dict(),
    "source_tokenizer": CharTokenizer("xy").to_dict(),
    "labels": ["bad", "good"],
    "told": {"vocab_size": 5},
}


def now(**changed: Any) -> Any:
    names: dict[str, Any] = {"tokenizer": CharTokenizer("ab"), "source_tokenizer": CharTokenizer("xy")}
    return SimpleNamespace(**{**names, "labels": ["bad", "good"], "vocab_size": 5, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer": CharTokenizer("ac")}, r"the vocabulary had \d entries and has \d \(new: 'c'; gone: 'b'\)"),
        ({"source_tokenizer": CharTokenizer("x")}, r"the vocabulary of the sources had .* \(gone: 'y'\)"),
        ({"labels": ["good", "bad"]}, r"the list of labels had 2 entries and has 2 \(in another order\)"),
        ({"tokenizer": CharTokenizer("abcdefghijk")}, r"new: 'c', 'd', 'e', 'f', 'g' and 4 more"),
        ({"vocab_size": 9}, "vocab_size was 5 and is 9"),
    ],
)
def test_what_changed_is_named(changed: dict[str, Any], said: str) -> None:
    check_vocabulary(STORED, now())
    check_vocabulary({}, now(**changed))
    with pytest.raises(ValueError, match=said):
        check_vocabulary(STORED, now(**changed))
