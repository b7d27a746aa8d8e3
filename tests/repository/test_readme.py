"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from seqlab.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ (seqlab fit .*)\n((?:seqlab: .*\n)?)", README, flags=re.MULTILINE)


@pytest.mark.parametrize(("command", "answer"), SHOWN, ids=[command for command, _ in SHOWN])
def test_commands_do_what_is_shown(
    command: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")
    code = main([*shlex.split(command)[1:], "--trainer.fast_dev_run=true"])
    assert code == (2 if answer else 0)
    if answer:
        assert capsys.readouterr().err == answer


def test_commands_are_shown() -> None:
    assert len(SHOWN) >= 3 and any(answer for _, answer in SHOWN)


def test_every_verb_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = set(re.findall(r"^    (\w+)  +\w", capsys.readouterr().out, flags=re.MULTILINE))
    listed = {
        verb for row in re.findall(r"^\| `seqlab ([\w\\|]+)", README, flags=re.MULTILINE) for verb in row.split("\\|")
    }
    assert verbs == listed


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
