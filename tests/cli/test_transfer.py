"""An encoder that was trained to find hidden tokens serves a classifier, frozen or tuned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.conftest import Seqlab

ENCODER = ["--model.model.encoder.d_model=16", "--model.model.encoder.num_layers=1"]
WORDS = ["red", "green", "blue", "cat", "dog", "sky", "sea"]


def weights(folder: Path, run: str, seqlab: Seqlab) -> dict[str, torch.Tensor]:
    run_id = seqlab("compare", "--experiment", run, "--quiet").stdout.split()[0]
    (checkpoint,) = folder.glob(f"mlruns/*/{run_id}/artifacts/checkpoints/last.ckpt")
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    prefix = "model.encoder."
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


# Lightning's advice for longer fits.
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_goes_from_one_task_to_another(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    lines = [" ".join([*(WORDS[(i * k) % 7] for k in range(1, 6)), f"n{i}"]) for i in range(1, 200)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "labelled.txt").write_text("\n".join(f"{i % 2} {line}" for i, line in enumerate(lines)) + "\n")
    seqlab = inside(tmp_path)
    mlm = ["--data.path=text.txt", "--data.seq_len=32", "--data.tokenizer=WordTokenizer", *ENCODER]
    limits = ["--trainer.max_steps=4", "--trainer.val_check_interval=2"]
    seqlab("fit", "--config", "mlm/transformer", *mlm, *limits, "--run_name=mlm", "--experiment=mlm")
    before = weights(tmp_path, "mlm", seqlab)
    (stored,) = tmp_path.glob("mlruns/mlm/*/artifacts/tokenizer.json")

    options = ["--model.model.encoder.positions=Learned", "--model.model.encoder.block.ffn.d_ff=512"]
    data = ["--data.train=labelled.txt", "--data.max_len=32", "--data.tokenizer=StoredTokenizer"]
    classify = ["fit", "--config", "classify/transformer", *data, f"--data.tokenizer.path={stored}", *ENCODER, *options]
    steps = ["--trainer.max_steps=3", "--encoder_from=mlm"]
    for name, freeze in (("frozen", True), ("tuned", False)):
        seqlab(*classify, *steps, f"--freeze_encoder={freeze}", f"--run_name={name}", f"--experiment={name}")
        after = weights(tmp_path, name, seqlab)
        assert set(after) == set(before)
        assert len(after["embedding.weight"]) == len(before["embedding.weight"]) - 1
        same = [torch.equal(after[key], before[key][: len(after[key])]) for key in before]
        assert all(same) if freeze else not any(same)

    refused = seqlab(*classify, "--encoder_from=mlm", "--model.model.encoder.d_model=24", code=2).stderr
    assert "--encoder_from mlm: its model is not this one: size mismatch" in refused
    refused = seqlab(*classify, "--data.tokenizer.path=nowhere.json", code=2).stderr
    assert "nowhere.json is no tokenizer" in refused
