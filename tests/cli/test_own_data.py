"""A user's own data, task and model in the working folder, named by their class paths: no registration anywhere,
imported again only on trust, and stored as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import lightning as L
import pytest
import yaml
from jsonargparse import ArgumentParser

from cli.conftest import TINY, Seqlab, write_text
from data.order import check_order
from seqlab.config.stored_config import check_reads_back

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
MODULE = '''
from collections.abc import Callable
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from seqlab.batch import TokenBatch
from seqlab.mixer import Mixer
from seqlab.recurrence import GRU
from seqlab.tasks import LanguageModeling

Path("imported").touch()


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


class Mine(GRU):
    """A mixer."""


class AnInstance(GRU):
    def __init__(self, d_model: int, layer: int = 0, *, act=nn.ReLU()):
        super().__init__(d_model, layer)


class ListsLast(GRU):
    def __init__(
        self, d_model: int, layer: int = 0, *, inner: Callable[[int], Mixer] | list[Callable[[int], Mixer]] = GRU
    ):
        super().__init__(d_model, layer)
'''
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on a loader of lists


@pytest.fixture(name="seqlab")
def _seqlab(tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch) -> Seqlab:
    """A command beside the module, which is not imported yet."""
    sys.modules.pop("theirs", None)
    (tmp_path / "theirs.py").write_text(MODULE, encoding="utf-8")
    write_text(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return inside(tmp_path)


@pytest.mark.slow
def test_they_are_fitted_by_their_class_paths(seqlab: Seqlab) -> None:
    own = ["--data=theirs.Counting", "--model=theirs.Loud", "--model.model=theirs.Bigram"]
    options = ["--data.base=5", "--model.model.scale=2", "--model.lr=0.5", "--model.warmup_steps=1"]
    limits = ["--trainer.max_epochs=15", "--run_name=own"]
    assert "fitted loudly" in seqlab("fit", *own, *options, *limits).stdout
    tested = seqlab("test", *own, *options, "--ckpt_path=own").stdout
    (accuracy,) = [line.split("│")[2].strip() for line in tested.splitlines() if "test/accuracy" in line]
    assert float(accuracy) == 1.0
    refused = seqlab("fit", *own, "--data.bass=5", code=2).stderr
    assert "data.bass" in refused and "base" in refused


TOLD = {
    "vocab_size: null": "needs a data module whose vocab_size is a whole number of at least 1, got none",
    "seq_len: null": "needs a data module whose seq_len is a whole number of at least 1, got none",
    "seq_len: 2.5": "needs a data module whose seq_len is a whole number of at least 1, got 2.5",
    "vocab_size: 0": "needs a data module whose vocab_size is a whole number of at least 1, got 0",
    "tokenizer: bpe": "has a tokenizer that is a str; give a Tokenizer of seqlab_data.tokenizers, or none",
}


@pytest.mark.slow
def test_what_it_must_tell_is_checked_by_name_and_without_a_tokenizer_its_bundle_runs_on_ids(
    tmp_path: Path, seqlab: Seqlab
) -> None:
    model = ("d_model=8", "num_layers=1", "mixer=GRU", "positions=NoPositions")
    fit = ["fit", "--model=LanguageModeling", *(f"--model.model.{one}" for one in model), "--trainer.max_epochs=1"]
    fit += ["--run_name=ids", "--data=theirs.Telling"]
    for tells, message in TOLD.items():
        (refused,) = seqlab(*fit, f"--data.tells={{{tells}}}", code=2).stderr.splitlines()
        assert message in refused
    assert not list(tmp_path.glob("mlruns/*/*/artifacts")), "a refused fit leaves no run"

    said = seqlab(*fit, "--data.tells={tokenizer: null}").stdout
    assert "next: seqlab export ids --trust theirs --out bundles/ids\n" in said
    said = seqlab("export", "ids", "--trust", "theirs", "--out", "bundles/ids").stdout
    assert 'next: seqlab generate bundles/ids --prompt "1 2 3"\n' in said
    options = ("--prompt", "1 2 3", "--max-new-tokens", "4", "--seed", "1")
    written = seqlab("generate", "bundles/ids", *options).stdout
    assert len(written.split()) == 4 and all(word in "0123456" for word in written.split())
    assert seqlab("generate", "ids", "--trust", "theirs", *options).stdout == written


@pytest.mark.slow
def test_the_example_is_fitted_and_tested_and_resumes_exactly(
    tmp_path: Path, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own_data = import_module("own_data")
    check_order(own_data.Waves, 100)
    seqlab(*own_data.FIT)
    tested = seqlab("test", "waves", "--trust", "own_data").stdout
    (accuracy,) = [line.split("│")[2] for line in tested.splitlines() if "test/accuracy" in line]
    assert float(accuracy) > 0.4  # one of 16 by chance


@pytest.mark.slow
def test_a_plug_in_is_imported_again_only_on_trust(
    tmp_path: Path, seqlab: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = seqlab("fit", "--config", "lm/gru", *TINY, "--model.model.mixer=theirs.Mine", "--run_name=mine").stdout
    assert "next: seqlab export mine --trust theirs --out bundles/mine\n" in said
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(sys.modules, "theirs")
    for verb in (["generate", "mine", "--prompt=a", "--max-new-tokens=3"], ["export", "mine", "--out=bundle"]):
        refused = seqlab(*verb, code=2).stderr
        assert "theirs.Mine" in refused and "--trust theirs" in refused
        assert not (tmp_path / "imported").exists() and not (tmp_path / "bundle").exists()
    assert seqlab("generate", "mine", "--max-new-tokens=3", "--trust", "theirs").stdout
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("mixer", "said"),
    [
        (["AnInstance"], "mixer.init_args.act is ReLU() and would be stored as 'Unable to serialize"),
        (["ListsLast", "--model.model.mixer.inner=[GRU, LSTM]"], "mixer.inner: "),
    ],
)
def test_a_fit_whose_run_could_not_be_loaded_again_does_not_begin(
    mixer: list[str], said: str, tmp_path: Path, seqlab: Seqlab
) -> None:
    name, *options = mixer
    fit = ["fit", "--config", "lm/gru", *TINY, f"--model.model.mixer=theirs.{name}", *options]
    (line,) = seqlab(*fit, code=2).stderr.strip().splitlines()
    assert line.startswith("seqlab: a run of this config could not be loaded again: ") and said in line
    assert not list(tmp_path.glob("mlruns/*/*"))


def test_reading_a_config_back_leaves_it_as_it_is() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(L.Trainer, "trainer", instantiate=False, fail_untyped=False)
    callbacks = [{"class_path": "lightning.pytorch.callbacks.LearningRateMonitor"}]
    given = parser.parse_object({"trainer": {"callbacks": callbacks}})
    stored = yaml.safe_load(parser.dump(given, format="yaml"))
    kept = deepcopy(stored)
    check_reads_back(parser, stored, given)
    assert stored == kept
