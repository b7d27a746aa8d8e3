"""Commands of docs/scale.md that start fits: each has options that fit takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from seqlab.cli import main
from seqlab.cli.parsed_fit import check_fit
from seqlab.config.quiet import quiet

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SECTIONS = [
    PAGE.partition(f"## {name}\n")[2].partition("\n## ")[0] for name in ("From laptop to cluster", "When a rank hangs")
]
SHOWN = re.findall(r"^\$ (.*?seqlab (?:fit|submit) .*?)(?:;.*)?$", "".join(SECTIONS), flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", SHOWN)
def test_a_fit_that_is_shown_is_taken(command: str) -> None:
    start, verb, options = re.split(r"seqlab (fit|submit) ", command)
    assert re.fullmatch(r"(torchrun (--\w+ \S+ )+-m |until )?", start)
    if verb == "submit":
        assert main([verb, *shlex.split(options)]) == 0
    else:
        quiet()
        check_fit(shlex.split(options))


def test_fits_are_shown() -> None:
    assert len(SHOWN) >= 5 and any("--resume auto" in command for command in SHOWN)
