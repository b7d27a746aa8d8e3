"""Images from the command line: fit and test the built-in digits, and be refused where text is read."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Seqlab

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
ALONE = ["--trainer.logger=false", "--trainer.default_root_dir=.", "--seed_everything=1"]


@pytest.mark.slow
def test_a_small_vit_learns_digits_and_its_checkpoint_scores_the_same(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    seqlab = inside(tmp_path)
    small = ["--model.model.encoder.d_model=32", "--model.model.encoder.num_layers=1", "--data.patch_size=4"]
    fit = [*small, "--model.lr=1e-2", "--trainer.max_epochs=4"]
    done = seqlab("fit", "--config", "image/vit", *fit, *ALONE)
    (run,) = re.findall(r"Checkpoint (\S+) · next: seqlab test \1", done.stdout)
    assert "class_token" in done.stderr
    scores = seqlab("test", "--config", "image/vit", *small, f"--ckpt_path={run}").stdout
    found = re.search(r"test/accuracy\W+([\d.]+)", scores)
    assert found is not None and float(found[1]) > 0.7  # a tenth by chance
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"7\n")))
    assert "classify reads texts" in seqlab("classify", run, code=2).stderr


@pytest.mark.slow
def test_features_and_models_of_tokens_do_not_mix(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    seqlab = inside(tmp_path)
    fit = ["fit", "--config", "image/vit", "--trainer.fast_dev_run=true"]
    said = seqlab(*fit, "--model.model.encoder.embed=torch.nn.Embedding", code=2).stderr
    assert "the inputs are features, which Embedding does not embed; set the encoder's embed to torch.nn.Linear" in said
    said = seqlab(*fit, "--data.patch_size=3", code=2).stderr
    assert "data.patch_size 3 does not divide images of 8 x 8" in said
