"""A user's own LightningDataModule, task and model in the folder where they work, named by their class paths: no
registration anywhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from cli.conftest import Seqlab
from data.order import check_order

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"

MODULE = '''
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from seqlab.batch import TokenBatch
from seqlab.tasks import LanguageModeling


class Counting(L.LightningDataModule):
    """Every sequence counts on from a number, modulo `base`."""

    def __init__(self, base: int = 7):
        super().__init__()
        self.vocab_size, self.seq_len = base, 12

    def train_dataloader(self):
        counted = (torch.arange(64)[:, None] + torch.arange(13)) % self.vocab_size
        batches = [
            TokenBatch(some[:, :-1], some[:, 1:], torch.full((len(some),), 12)) for some in counted.split(16)
        ]
        return DataLoader(batches, batch_size=None)

    val_dataloader = test_dataloader = train_dataloader


class Telling(Counting):
    """Tells what it is told to."""

    def __init__(self, tells: dict):
        super().__init__()
        for name, value in tells.items():
            setattr(self, name, value)


class Bigram(nn.Module):
    def __init__(self, vocab_size: int, seq_len: int, scale: float = 1.0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)
        self.scale = scale

    def forward(self, tokens):
        return self.scale * self.table(tokens), {}


class Loud(LanguageModeling):
    def on_fit_end(self):
        print("fitted loudly")
'''


# Lightning's advice on a loader of lists.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_they_are_fitted_by_their_class_paths(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counting.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    seqlab = inside(tmp_path)
    own = ["--data=counting.Counting", "--model=counting.Loud", "--model.model=counting.Bigram"]
    options = ["--data.base=5", "--model.model.scale=2", "--model.lr=0.5", "--model.warmup_steps=1"]
    limits = ["--trainer.max_epochs=15", "--run_name=own"]
    assert "fitted loudly" in seqlab("fit", *own, *options, *limits).stdout
    tested = seqlab("test", *own, *options, "--ckpt_path=own").stdout
    (accuracy,) = [line.split("│")[2].strip() for line in tested.splitlines() if "test/accuracy" in line]
    assert float(accuracy) == 1.0
    refused = seqlab("fit", *own, "--data.bass=5", code=2).stderr
    assert "data.bass" in refused and "base" in refused


TOLD = {
    "vocab_size: null": "needs data that tells its vocab_size, this tells none",
    "seq_len: null": "needs data that tells its seq_len, this tells none",
    "seq_len: 2.5": "needs data that tells its seq_len, this tells 2.5",
    "vocab_size: 0": "needs data that tells its vocab_size, this tells 0",
    "tokenizer: bpe": "has a tokenizer that is a str; give a Tokenizer of seqlab_data.tokenizers, or none",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_it_must_tell_is_checked_by_name_and_without_a_tokenizer_its_bundle_runs_on_ids(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    seqlab = inside(tmp_path)
    small = [
        "--model.model.d_model=8",
        "--model.model.num_layers=1",
        "--model.model.mixer=GRU",
        "--model.model.positions=NoPositions",
    ]
    fit = ["fit", "--model=LanguageModeling", *small, "--trainer.max_epochs=1", "--run_name=ids"]
    for tells, message in TOLD.items():
        refused = seqlab(*fit, "--data=telling.Telling", f"--data.tells={{{tells}}}", code=2).stderr
        assert message in refused and len(refused.splitlines()) == 1, refused
    assert not list(tmp_path.glob("mlruns/*/*/artifacts")), "a refused fit leaves no run"

    said = seqlab(*fit, "--data=telling.Telling", "--data.tells={tokenizer: null}").stdout
    assert "next: seqlab export ids --trust telling --out bundles/ids\n" in said
    said = seqlab("export", "ids", "--trust", "telling", "--out", "bundles/ids").stdout
    assert 'next: seqlab generate bundles/ids --prompt "1 2 3"\n' in said
    options = ("--prompt", "1 2 3", "--max-new-tokens", "4", "--seed", "1")
    written = seqlab("generate", "bundles/ids", *options).stdout
    assert len(written.split()) == 4 and all(word in "0123456" for word in written.split())
    assert seqlab("generate", "ids", "--trust", "telling", *options).stdout == written


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_is_fitted_and_tested_and_resumes_exactly(
    tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own_data, seqlab = import_module("own_data"), inside(tmp_path)
    check_order(own_data.Waves, 100)
    seqlab(*own_data.FIT)
    tested = seqlab("test", "waves", "--trust", "own_data").stdout
    (accuracy,) = [line.split("│")[2] for line in tested.splitlines() if "test/accuracy" in line]
    assert float(accuracy) > 0.4  # one of 16 by chance
