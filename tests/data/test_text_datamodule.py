"""TextDataModule by itself and under a Trainer: nothing lost, nothing leaked, clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from jsonargparse import ArgumentParser
from torch import Tensor

from data.helpers import QUIET, refused
from data.modules import TEXTS, text
from data.order import same
from seqlab.batch import IGNORE, TokenBatch
from seqlab_data import TextDataModule
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer
from trainers import quiet_trainer

pytestmark = QUIET
Make = Callable[..., TextDataModule]
TEXT = "".join(TEXTS)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return partial(text, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "text"


@pytest.mark.parametrize("tokenizer", [ByteTokenizer, partial(SubwordTokenizer, vocab_size=300)])
def test_the_predicted_tokens_are_the_whole_text_and_its_characters(make: Make, tokenizer: Any) -> None:
    data = make(tokenizer=tokenizer)
    data.setup("fit")
    read, num_chars, described = "", 0, data.describe()
    # Without shuffling: the order of an overfitting trainer.
    loaders = data._loader(data._batches("train")), data.val_dataloader(), data.test_dataloader()
    for name, loader in zip(("train", "val", "test"), loaders, strict=True):
        batches = list(loader)
        predicted = torch.cat([batch.targets[batch.targets != IGNORE] for batch in batches]).tolist()
        chars = sum(int(batch.num_chars.sum()) for batch in batches)
        assert described["splits"][name] == {"tokens": len(predicted), "chars": chars}
        read += data.tokenizer.decode(predicted)
        num_chars += chars
    assert (read, num_chars) == (TEXT, len(TEXT))


def test_it_describes_itself_and_what_the_model_needs_before_setup(make: Make, folder: Path, tmp_path: Path) -> None:
    data = make()
    assert data.seq_len == 16
    assert data.vocab_size == data.tokenizer.vocab_size == 4 + len({*TEXT[: round(0.6 * len(TEXT))]})
    described = data.describe()
    assert [described[key] for key in ("name", "source", "tokenizer")] == ["text", str(folder), "CharTokenizer"]
    assert len(described["digest"]) == 64
    assert sum(split["chars"] for split in described["splits"].values()) == len(TEXT)
    default = TextDataModule(cache_dir=str(tmp_path)).describe()
    assert default["source"].startswith("pydoc_data.topics"), "CPython's documentation is the default"
    assert sum(split["chars"] for split in default["splits"].values()) > 400_000


def test_a_split_shorter_than_a_window_is_refused_with_file_and_line(make: Make) -> None:
    data = make(seq_len=300, split=(0.8, 0.1, 0.1))
    with refused(r"the val split begins at .*2\.txt, line \d+ and has \d+ tokens.* takes 301") as error:
        data.setup("fit")
    line = int(str(error.value).split("line ")[1].split()[0])
    assert line == TEXT[: round(0.8 * len(TEXT))].count("\n") - "".join(TEXTS[:2]).count("\n") + 1 > 1


@pytest.mark.slow
def test_spawned_workers_read_the_same(make: Make) -> None:
    data = make(num_workers=1)
    data.setup("fit")
    loader = data.val_dataloader()
    loader.multiprocessing_context = "spawn"
    alone = list(make().val_dataloader())
    for batch, expected in zip(loader, alone, strict=True):
        assert isinstance(batch, TokenBatch)
        assert same(batch, expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], CharTokenizer),
        (["--data.tokenizer=ByteTokenizer"], ByteTokenizer),
        (["--data.tokenizer=SubwordTokenizer", "--data.tokenizer.vocab_size=300"], SubwordTokenizer),
    ],
)
def test_it_is_built_from_a_config(make: Make, folder: Path, options: list[str], expected: type[Tokenizer]) -> None:
    make()  # writes the texts
    parser = ArgumentParser()
    parser.add_class_arguments(TextDataModule, "data")
    paths = [f"--data.path=['{folder}/0.txt', '{folder}/[12].txt']", f"--data.cache_dir={folder.parent}"]
    data = parser.instantiate(parser.parse_args([*paths, *options])).data
    assert type(data.tokenizer) is expected
    assert sum(split["chars"] for split in data.describe()["splits"].values()) == len(TEXT)


class Counter(L.LightningModule):
    """Notes every window that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.windows: list[tuple[int, ...]] = []
        self.evaluated: list[tuple[int, ...]] = []

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        self.windows += [tuple(row) for row in batch.tokens.tolist()]
        return self.weight * 1.0

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        self.evaluated += [tuple(row) for row in batch.tokens.tolist()]
        return batch.tokens

    test_step = predict_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = partial(quiet_trainer, Path(), use_distributed_sampler=False)


@pytest.mark.parametrize("verb, split", [("validate", "val"), ("test", "test"), ("predict", "test")])
def test_evaluation_goes_over_a_split_in_order(make: Make, verb: str, split: str) -> None:
    data, model = make(), Counter()
    getattr(trainer(), verb)(model, data)
    batches = data._loader(data._batches(split))
    assert model.evaluated == [tuple(row) for batch in batches for row in batch.tokens.tolist()]


def test_overfitting_repeats_the_same_batches_and_an_epoch_cut_short_goes_on_in_the_next(make: Make) -> None:
    model, cut, whole = Counter(), Counter(), Counter()
    trainer(overfit_batches=2, max_epochs=3).fit(model, make())
    assert len(model.windows) == 24
    assert model.windows[:8] == model.windows[8:16] == model.windows[16:]
    trainer(limit_train_batches=3, max_epochs=4, limit_val_batches=0).fit(cut, make())
    trainer(max_epochs=2, limit_val_batches=0).fit(whole, make())
    assert cut.windows == whole.windows[: len(cut.windows)]


def test_its_state_is_plain_and_places_the_next_batch(make: Make) -> None:
    data = make()
    n = len(data.train_dataloader())
    state = data.state_dict()
    assert (state["epoch"], state["batch"]) == data.position == (0, 0)
    assert all(isinstance(value, int | str) for value in state.values())
    resumed = make()
    resumed.load_state_dict({**state, "epoch": 1, "batch": 2})
    assert resumed.position == (1, 2)
    batches = data._batches("train", shuffle=True)
    whole = [batches[number].tokens for number in range(n + 2, 2 * n + 2)]
    assert all(torch.equal(batch.tokens, other) for batch, other in zip(resumed.train_dataloader(), whole, strict=True))


def test_other_text_may_be_evaluated_with_the_same_tokenizer(make: Make, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.ckpt"
    fitted = trainer(max_steps=2, limit_val_batches=0)
    fitted.fit(Counter(), make(tokenizer=ByteTokenizer))
    fitted.save_checkpoint(path)
    other = str(folder / "1.txt")
    trainer().test(Counter(), make(other, tokenizer=ByteTokenizer), ckpt_path=path, weights_only=True)
    with refused("trained with tokenizer"):
        trainer().test(Counter(), make(other), ckpt_path=path, weights_only=True)
    with refused("trained with data"):
        trainer(max_steps=4).fit(Counter(), make(other, tokenizer=ByteTokenizer), ckpt_path=path, weights_only=True)


def test_splits_may_have_files_of_their_own(folder: Path, make: Make) -> None:
    first, second, third = (str(folder / f"{i}.txt") for i in range(3))
    whole = make(None, train=first, val=second, test=third)
    sizes = {name: split["chars"] for name, split in whole.describe()["splits"].items()}
    assert sizes == dict(zip(("train", "val", "test"), map(len, TEXTS), strict=True))
    assert set(whole.tokenizer.to_dict()["alphabet"]) == set(TEXTS[0]), "the tokenizer learns from train alone"

    divided = make(None, train=[first, second], val=third)
    sizes = {name: split["chars"] for name, split in divided.describe()["splits"].items()}
    length = len(TEXTS[0]) + len(TEXTS[1])
    assert sizes == {"train": round(length * 0.75), "val": len(TEXTS[2]), "test": length - round(length * 0.75)}
    digests = {make(None, train=a, val=b).describe()["digest"] for a, b in ((first, second), (second, first))}
    assert len(digests | {make([first, second]).describe()["digest"]}) == 3

    with refused(r"data\.val .* beside data\.train"):
        make(None, val=first)
    with refused("both given"):
        make(first, train=second)
    with refused(r"2\.txt"):
        make(None, train=[first] * 30, val=third, seq_len=1000).setup("fit")
