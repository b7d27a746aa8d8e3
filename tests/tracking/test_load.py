"""A run gives back its model, tokenizer and data module, with no other input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import TINY, write_text
from repository.source_tree import python_blocks
from seqlab.cli import main
from seqlab.trained.load import load_run


@pytest.mark.slow
def test_rebuild_from_a_run_as_docs_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    assert main(["fit", "--config", "lm/attention-rope", *TINY, "--run_name=attention-rope"]) == 0
    shown: dict[str, Any] = {}
    exec(python_blocks("docs/verbs.md")[0], shown)
    assert shown["logits"].shape == (1, 4, shown["run"].tokenizer.vocab_size) and shown["text"]

    first = load_run("attention-rope")
    first.datamodule.setup("fit")
    batch = next(iter(first.datamodule.val_dataloader()))
    assert first.tokenizer.decode(first.tokenizer.encode("the quick")) == "the quick"
    assert batch.tokens.shape == (4, 16)

    (tmp_path / "text.txt").unlink()
    checkpoint = next(tmp_path.glob("mlruns/*/*/artifacts/checkpoints/best.ckpt"))
    moved = checkpoint.rename(tmp_path / "moved.ckpt")
    second = load_run(str(moved))
    assert second.run_id == first.run_id and second.config == first.config
    with torch.inference_mode():
        assert torch.equal(first.model(batch.tokens)[0], second.model(batch.tokens)[0])
