"""TextDataModule by itself and under a Trainer: nothing lost, nothing leaked, clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonargparse import ArgumentParser

from data.helpers import QUIET, refused
from data.modules import TEXTS, text
from data.test_resume import fit
from seqlab.batch import IGNORE
from seqlab_data import TextDataModule
from seqlab_data.tokenizers import ByteTokenizer, SubwordTokenizer

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
    loaders = data._loader(data._batches("train")), data.val_dataloader(), data.predict_dataloader()
    for name, loader in zip(("train", "val", "test"), loaders, strict=True):
        batches = list(loader)
        predicted = torch.cat([batch.targets[batch.targets != IGNORE] for batch in batches]).tolist()
        chars = sum(int(batch.num_chars.sum()) for batch in batches)
        assert described["splits"][name] == {"tokens": len(predicted), "chars": chars}
        read += data.tokenizer.decode(predicted)
        num_chars += chars
    assert (read, num_chars) == (TEXT, len(TEXT))


def test_it_describes_itself_and_what_the_model_needs_before_setup(make: Make, folder: Path) -> None:
    data = make()
    assert data.seq_len == 16
    assert data.vocab_size == data.tokenizer.vocab_size == 4 + len({*TEXT[: round(0.6 * len(TEXT))]})
    described = data.describe()
    assert [described[key] for key in ("name", "source", "tokenizer")] == ["text", str(folder), "CharTokenizer"]
    assert len(described["digest"]) == 64
    assert sum(split["chars"] for split in described["splits"].values()) == len(TEXT)


def test_a_split_shorter_than_a_window_is_refused_with_file_and_line(make: Make) -> None:
    data = make(seq_len=300, split=(0.8, 0.1, 0.1))
    with refused(r"the val split begins at .*2\.txt, line \d+ and has \d+ tokens.* takes 301") as error:
        data.setup("fit")
    line = int(str(error.value).split("line ")[1].split()[0])
    assert line == TEXT[: round(0.8 * len(TEXT))].count("\n") - "".join(TEXTS[:2]).count("\n") + 1 > 1


def test_it_is_built_from_a_config(make: Make, folder: Path) -> None:
    make()  # writes the texts
    parser = ArgumentParser()
    parser.add_class_arguments(TextDataModule, "data")
    given = [f"--data.path=['{folder}/0.txt', '{folder}/[12].txt']", f"--data.cache_dir={folder.parent}"]
    given += ["--data.tokenizer=SubwordTokenizer", "--data.tokenizer.vocab_size=300"]
    data = parser.instantiate(parser.parse_args(given)).data
    assert type(data.tokenizer) is SubwordTokenizer and data.vocab_size == 300
    assert sum(split["chars"] for split in data.describe()["splits"].values()) == len(TEXT)


def test_overfitting_repeats_the_same_batches_and_an_epoch_cut_short_goes_on_in_the_next(make: Make) -> None:
    seen = [batch for _, batch in fit(make(), overfit_batches=2)]
    assert len(seen) == 6 and seen[:2] == seen[2:4] == seen[4:]
    cut = fit(make(), limit_train_batches=3, max_epochs=4)
    assert len(cut) == 12 and cut == fit(make(), max_epochs=2)[:12]


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

    with refused(r"data\.val .* need data\.train"):
        make(None, val=first)
    with refused("both given"):
        make(first, train=second)
    with refused(r"2\.txt"):
        make(None, train=[first] * 30, val=third, seq_len=1000).setup("fit")
