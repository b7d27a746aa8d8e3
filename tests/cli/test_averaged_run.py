"""`--ema` along a user's path: fitted, resumed, validated, exported and verified, it is the average that counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text
from seqlab.tracking.runs import find_run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_the_average_is_what_is_kept(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    seqlab("fit", "--config=lm/attention-nope", *TINY, "--ema=0.9", "--run_name=run", "--model.warmup_steps=0")
    seqlab("resume", "run", "--trainer.max_steps=8")
    losses = [value for _, value in find_run("run").history("val/loss")]
    found = re.search(r"val/loss\W+([\d.]+)", seqlab("validate", "run", "--trainer.limit_val_batches=2").stdout)
    assert len(losses) == 4 and found and float(found[1]) == pytest.approx(min(losses), rel=1e-5)
    seqlab("export", "run", "--out=bundle")
    seqlab("verify", "bundle")
