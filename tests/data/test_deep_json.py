"""JSON that is nested too deeply for Python is refused in one sentence, or is as if it were not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqlab.comparison.scores import read_scores
from seqlab_data import cache, checked, measured
from seqlab_data.tokenizers import PretrainedTokenizer, StoredTokenizer, load_tokenizer
from seqlab_export.runner.manifest import load_manifest

REFUSING: dict[str, Callable[[Path], Any]] = {
    "tokenizer.json": lambda path: load_tokenizer(path.parent),
    "stored.json": lambda path: StoredTokenizer("", path=str(path)),
    "pretrained.json": lambda path: PretrainedTokenizer(file=str(path)),
    "manifest.json": lambda path: load_manifest(path.parent),
    "predictions.jsonl": lambda path: read_scores(path, "one", "13a"),
}
DOING_WITHOUT: dict[str, Callable[[Path], Any]] = {
    checked.NOTE: lambda path: checked._noted(path.parent),
    cache.SUMS: lambda path: cache._intact(path.parent),
    "measured.json": lambda path: measured._noted(path, []),
}


def deep(path: Path, closed: bool) -> Path:
    path.write_text("[" * 100_000 + "]" * 100_000 * closed)
    return path


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("name", REFUSING)
def test_it_is_refused(name: str, closed: bool, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.json|\.jsonl? is not"):
        REFUSING[name](deep(tmp_path / name, closed))


@pytest.mark.parametrize("name", DOING_WITHOUT)
def test_a_note_is_as_if_it_were_not_there(name: str, tmp_path: Path) -> None:
    assert not DOING_WITHOUT[name](deep(tmp_path / name, True))
