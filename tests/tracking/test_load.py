"""A run gives back its model, tokenizer and data module, with no other input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import TINY, write_text
from repository.source_tree import python_blocks
from seqlab.cli import main
from seqlab.config.configs import build_data
from seqlab.trained.load import load_run
from seqlab.trained.same_vocabulary import give_path


@pytest.mark.slow
def test_rebuild_from_a_run_as_docs_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    assert main(["fit", "--config", "lm/attention-rope", *TINY, "--run_name=attention-rope"]) == 0
    shown: dict[str, Any] = {}
    exec(python_blocks("docs/verbs.md")[1], shown)
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


def test_data_that_a_stored_config_names_as_none_are_refused() -> None:
    assert build_data({}) is None
    with pytest.raises(ValueError, match="required: data"):
        build_data({"data": None})


STORED = "seqlab_data.tokenizers.StoredTokenizer"


@pytest.mark.parametrize(
    ("tokenizer", "path"),
    [
        ({"class_path": STORED}, "/run/tokenizer.json"),
        ({"class_path": "StoredTokenizer", "init_args": {"path": ""}}, "/run/tokenizer.json"),
        ({"class_path": STORED, "init_args": {"path": "/own.json"}}, "/own.json"),
        ({"class_path": "seqlab_data.tokenizers.CharTokenizer"}, None),
    ],
)
def test_a_stored_tokenizer_without_a_path_is_the_runs(tokenizer: dict[str, Any], path: str | None) -> None:
    give_path(tokenizer, Path("/run/checkpoints/best.ckpt"))
    assert tokenizer.get("init_args", {}).get("path") == path
