"""An encoder that was trained to find hidden tokens serves a classifier, frozen or tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cli.conftest import Seqlab, last_weights
from seqlab.trained.load import load_run

ENCODER = ["--model.model.encoder.d_model=16", "--model.model.encoder.num_layers=1"]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning's advice for longer fits
WORDS = ["red", "green", "blue", "cat", "dog", "sky", "sea"]


def weights(run: str) -> dict[str, torch.Tensor]:
    """Weights of a run's encoder, by name."""
    prefix = "model.encoder."
    return {name.removeprefix(prefix): value for name, value in last_weights(run).items() if name.startswith(prefix)}


def test_an_encoder_goes_from_one_task_to_another(tmp_path: Path, quick: Seqlab) -> None:
    lines = [" ".join([*(WORDS[(i * k) % 7] for k in range(1, 6)), f"n{i}"]) for i in range(1, 200)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "labelled.txt").write_text("\n".join(f"{i % 2} {line}" for i, line in enumerate(lines)) + "\n")
    mlm = ["--data.path=text.txt", "--data.seq_len=32", "--data.tokenizer=WordTokenizer", *ENCODER]
    limits = ["--trainer.max_steps=4", "--trainer.val_check_interval=2"]
    quick("fit", "--config", "mlm/transformer", *mlm, *limits, "--run_name=mlm", "--experiment=mlm")
    before = weights("mlm")
    (stored,) = tmp_path.glob("mlruns/mlm/*/artifacts/tokenizer.json")

    options = ["--model.model.encoder.positions=Learned", "--model.model.encoder.block.ffn.ratio=4"]
    data = ["--data.train=labelled.txt", "--data.max_len=32", "--data.tokenizer=StoredTokenizer"]
    classify = ["fit", "--config", "classify/transformer", *data, f"--data.tokenizer.path={stored}", *ENCODER, *options]
    steps = ["--trainer.max_steps=3", "--encoder_from=mlm"]
    for name, freeze in (("frozen", True), ("tuned", False)):
        quick(*classify, *steps, f"--freeze_encoder={freeze}", f"--run_name={name}", f"--experiment={name}")
        after = weights(name)
        assert set(after) == set(before)
        assert len(after["embedding.weight"]) == len(before["embedding.weight"]) - 1
        same = [torch.equal(after[key], before[key][: len(after[key])]) for key in before]
        assert all(same) if freeze else not any(same)

    refused = quick(*classify, "--encoder_from=mlm", "--model.model.encoder.d_model=24", code=2).stderr
    assert "--encoder_from mlm: its model is not this one: the checkpoint's embedding.weight is of shape" in refused
    refused = quick(*classify, "--data.tokenizer.path=nowhere.json", code=2).stderr
    assert "nowhere.json is no tokenizer" in refused


def test_a_fit_begins_with_word_vectors_and_goes_on_without_the_file(tmp_path: Path, quick: Seqlab) -> None:
    (tmp_path / "labelled.txt").write_text("".join(f"{i % 2} {WORDS[i % 7]} word{i}\n" for i in range(80)))
    lines = [f"{word} {' '.join(str(i + k / 10) for k in range(16))}" for i, word in enumerate(WORDS)]
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n")
    fit = ["fit", "--config", "classify/bag-of-words", "--data.train=labelled.txt", "--model.model.d_model=16"]
    steps = ["--word_vectors=v.txt", "--model.lr=1e-9", "--trainer.max_epochs=1", "--run_name=words"]
    said = quick(*fit, *steps).stderr
    assert "word vectors: v.txt has 7 of the " in said

    run = load_run("words")
    embedded = run.model.embedding(torch.tensor(run.tokenizer.encode(" ".join(WORDS))))
    assert torch.allclose(
        embedded, torch.tensor([[i + k / 10 for k in range(16)] for i in range(7)]), rtol=0, atol=1e-5
    )
    assert "word_vectors: v.txt" in next(tmp_path.glob("mlruns/*/*/artifacts/config.yaml")).read_text()

    (tmp_path / "v.txt").unlink()
    assert "word vectors" not in quick("resume", "words", "--trainer.max_epochs=2").stderr
    assert "--word_vectors v.txt is not a file" in quick(*fit, *steps, code=2).stderr
