"""docs/guides/own-mixer.md leads from an empty file to a proven bundle, by its own code and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text

TEXT = (Path(__file__).parents[2] / "docs/guides/own-mixer.md").read_text(encoding="utf-8")
CODE, COMMANDS = re.findall(r"```python\n(.*?)```.*?```console\n(.*?)```", TEXT, flags=re.DOTALL)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's, of short fits
def test_a_mixer_of_ones_own_becomes_a_proven_bundle(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decay.py").write_text(CODE, encoding="utf-8")
    write_text(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    seqlab = inside(tmp_path)
    said = {}
    for command in COMMANDS.strip().splitlines():
        program, verb, *args = shlex.split(command.removeprefix("$ "))
        assert program == "seqlab"
        said[verb] = seqlab(verb, *args, *(TINY if verb == "fit" else [])).stdout
    assert "2 pairs, 0 cells failed" in said["conformance"] and not (tmp_path / "docs").exists()
    (export,) = re.findall(r"^\$ (seqlab export .*)$", COMMANDS, flags=re.MULTILINE)
    assert f"next: {export}\n" in said["fit"], "what fit prints is what the page says, and it has worked"
    assert "next: seqlab generate bundles/decay" in said["export"] and said["generate"].strip()
    refused = seqlab("export", "decay", "--out", "again", code=2).stderr
    assert "--trust decay" in refused and not (tmp_path / "again").exists()
