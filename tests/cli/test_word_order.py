"""A run that is fitted on words in one order and tested on them in the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text
from seqlab.tracking.runs import find_run


# Lightning's advice for longer fits.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_is_fitted_in_one_order_and_tested_in_the_other(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    fit = ("fit", "--config", "lm/gru", *TINY, "--data.word_order")
    seqlab(*fit, "shuffled", "--run_name=shuffled")
    seqlab(*fit, "natural", "--run_name=natural")
    (said,) = seqlab(*fit, "sorted", code=2).stderr.splitlines()[-1:]
    assert said.startswith("seqlab: ") and "data.word_order" in said and "sorted" in said
    losses, tags = {}, {}
    for order in ("natural", "shuffled"):
        seqlab("test", "natural", f"--data.word_order={order}")
        run = find_run("natural")
        losses[order], tags[order] = run.metrics["test/loss"], run.tags["test.data"]
    assert losses["natural"] != losses["shuffled"]
    assert tags["natural"] == run.tags["dataset"] and tags["shuffled"].endswith(", data.word_order shuffled")
    assert "Not ranked with these, but below: 1 of other data." in seqlab("compare").stdout
    (said,) = seqlab("resume", "natural", "--data.word_order=shuffled", code=2).stderr.splitlines()[-1:]
    assert "the checkpoint was trained with data " in said
