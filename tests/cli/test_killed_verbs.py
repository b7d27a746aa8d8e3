"""Verbs that write, killed outright: what they write is there whole or not at all, and the same command works after."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab

SHARES = (0.5, 0.8, 0.95)
"""Moments of the kill, as shares of the verb's time; before the half it imports."""

WRITERS = {
    "export": (["export", "first", "--out=new bundle"], "new bundle"),
    "page": (["page", "bundle", "--out=page.html"], "page.html"),
    "compare": (["compare", "--out=report.html"], "report.html"),
    "promote": (["promote", "bundle"], None),
    "sweep": (["sweep", "--config=lm/gru", *TINY, "--vary=model.lr=0.1,0.2", "--sampler=grid", "--name=swept"], None),
}


@pytest.fixture(scope="module", name="folder")
def _folder(fitted: tuple[Path, Seqlab], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run and its bundle."""
    folder = tmp_path_factory.mktemp("killed") / "copy"
    shutil.copytree(fitted[0], folder)
    subprocess.run(_command("export", "first", "--out=bundle"), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", WRITERS)
def test_what_is_written_is_whole_or_not_there(
    verb: str, folder: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    args, out = WRITERS[verb]
    seconds = _seconds(args, shutil.copytree(folder, tmp_path / "whole"))
    for share in SHARES:
        there = shutil.copytree(folder, tmp_path / f"killed at {share}")
        with subprocess.Popen(
            _command(*args), cwd=there, env=_environment(there), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(share * seconds)
            process.kill()
        seqlab = inside(there)
        if out == "new bundle" and (there / out).exists():
            seqlab("verify", out)
        elif out is not None and (there / out).exists():
            assert (there / out).read_text(encoding="utf-8").rstrip().endswith("</html>")
        if out is None or not (there / out).exists():
            seqlab(*args)
        assert "first" in seqlab("compare", COLUMNS="160").stdout


def _seconds(args: list[str], folder: Path) -> float:
    begun = time.monotonic()
    done = subprocess.run(_command(*args), cwd=folder, env=_environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return time.monotonic() - begun


def _command(*args: str) -> list[str]:
    return [str(Path(sys.executable).with_name("seqlab")), *args]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "SEQLAB_CACHE": str(folder / "cache")}
