"""Documents in rows of their own, and corpora in given shares: from a fit that is stopped to a verified bundle."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.conftest import TINY, Seqlab, last_weights, send
from seqlab.tracking.runs import find_run

TEXTS = {
    "documents": ("--data.path=books.jsonl", "--data.packing=documents"),
    "mixture": ("--data.path={web: web.jsonl, books: books.jsonl}", "--data.mixture={web: 0.7, books: 0.3}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("of", ["documents", pytest.param("mixture", marks=pytest.mark.slow)])
def test_it_is_fitted_stopped_gone_on_with_tested_exported_and_verified(
    of: str, tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, word in (("books", "page "), ("web", "link ")):
        lines = (json.dumps({"text": f"{word * (1 + i % 9)}{i}"}) + "\n" for i in range(60))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    seqlab = inside(tmp_path)
    fit = ("fit", "--config", "lm/gru", *TINY, *TEXTS[of], "--trainer.max_steps=6")
    seqlab(*fit, "--run_name=whole")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGINT, 3)
        seqlab(*fit, "--run_name=stopped", code=128 + signal.SIGINT)
    seqlab("resume", "stopped")
    resumed, whole = last_weights("stopped"), last_weights("whole")
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    for split in ("train", "val"):
        assert find_run("stopped").history(f"{split}/loss") == find_run("whole").history(f"{split}/loss")
    assert "test/loss" in seqlab("test", "stopped").stdout
    seqlab("export", "stopped", "--out", "bundle")
    assert "greedy" in seqlab("verify", "bundle").stdout
