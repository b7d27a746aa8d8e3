"""The first commands of docs/scale.md: each is one that runs, as far as one process without GPUs can tell."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from seqlab.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From laptop to cluster")[2].partition("\n## ")[0]
SHOWN = re.findall(r"^\$ (.*?seqlab fit .*?)(?:;.*)?$", SECTION, flags=re.MULTILINE)
TINY = ("--data.path=text.txt", "--data.seq_len=16", "--model.model.d_model=16", "--model.model.num_layers=1")
ALONE = ("--trainer.devices=1", "--trainer.accelerator=cpu", "--trainer.strategy=auto", "--trainer.fast_dev_run=true")


@pytest.mark.parametrize("command", SHOWN)
def test_a_fit_that_is_shown_fits(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")
    start, _, fit = command.rpartition("seqlab fit ")
    assert re.fullmatch(r"(torchrun (--\w+ \S+ )+-m |until )?", start)
    assert main(["fit", *shlex.split(fit), *TINY, *ALONE]) == 0


def test_fits_are_shown() -> None:
    assert len(SHOWN) >= 5 and any("--resume auto" in command for command in SHOWN)
