"""Every packaged config opens with its command, says what it is, and fits."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Seqlab, write_text
from cli.test_translate import write_data
from seqlab.training.config import config_names, config_path

FITTED = [name for name in config_names() if not name.startswith("presets/")]
IN_EVERY_RUN = ("lm/hybrid", "mlm/transformer", "synthetic/adding")
TAGGED = "".join(f"anna\tB-PER\nsleeps\tO\nword{i}\tO\n\n" for i in range(90))
FILES = {"train.tsv": "pairs.tsv", "valid.tsv": "pairs.tsv", "tiny-shakespeare.txt": "text.txt"}


@pytest.mark.parametrize("name", config_names())
def test_it_opens_with_its_command_and_says_what_it_is(name: str) -> None:
    first, second, third, *_ = config_path(name).read_text(encoding="utf-8").splitlines()
    words = shlex.split(first)
    assert words[:5] == ["#", "seqlab", "fit", "--config", name]
    assert second.startswith("# ") and len(second) > 20
    assert third.startswith("# Measured") or name.startswith("presets/"), "what it gave, with seed, time and machine"


# Lightning's advice for longer fits.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_EVERY_RUN else pytest.mark.slow) for name in FITTED]
)
def test_it_fits(name: str, tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    """Two steps and two batches of validation, by the command that it opens with."""
    write_text(tmp_path)
    write_data(tmp_path)
    frames = np.random.default_rng(0).normal(size=(60, 9, 3))
    np.savez(tmp_path / "frames.npz", inputs=frames, targets=frames > 0)
    (tmp_path / "tagged.txt").write_text(TAGGED, encoding="utf-8")
    others = "tagged.txt" if name.startswith("tag/") else "labelled.txt"
    words = shlex.split(config_path(name).read_text(encoding="utf-8").splitlines()[0])[2:]
    command = [FILES.get(word, others if word.endswith((".txt", ".conll")) else word) for word in words]
    text = ["--data.path=text.txt"] if name.startswith(("lm/", "mlm/")) and "--data.path" not in command else []
    seqlab = inside(tmp_path)
    assert "val/loss" in seqlab(*command, *text, "--trainer.fast_dev_run=2").stderr
