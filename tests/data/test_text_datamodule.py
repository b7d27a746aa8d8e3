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

from data.order import check_order, same
from seqlab.batch import IGNORE, TokenBatch
from seqlab_data import TextDataModule
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer
from trainers import quiet_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]
TEXTS = ["The first document, é and all.\n" * 20, "A second one.\n" * 30, "And the third: \u2581 \U0001f600!\n" * 15]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    for i, text in enumerate(TEXTS):
        (tmp_path / "text" / f"{i}.txt").write_bytes(text.encode())
    return tmp_path / "text"


@pytest.fixture
def make(folder: Path) -> Callable[..., TextDataModule]:
    defaults = {"seq_len": 16, "batch_size": 4, "split": (0.6, 0.2, 0.2), "cache_dir": str(folder.parent / "cache")}
    return lambda path=str(folder), **options: TextDataModule(path, **{**defaults, **options})


SUBWORD: Callable[[str], Tokenizer] = lambda text: SubwordTokenizer(text, vocab_size=300)  # noqa: E731


@pytest.mark.parametrize("tokenizer", [ByteTokenizer, SUBWORD], ids=["byte", "subword"])
def test_the_predicted_tokens_are_the_whole_text_and_its_characters(
    make: Callable[..., TextDataModule], tokenizer: Callable[[str], Tokenizer]
) -> None:
    data = make(tokenizer=tokenizer)
    data.setup("fit")
    text, num_chars, described = "", 0, data.describe()
    for name, loader in {
        # Without shuffling: the order of an overfitting trainer.
        "train": data._loader(data._batches("train")),
        "val": data.val_dataloader(),
        "test": data.test_dataloader(),
    }.items():
        batches = list(loader)
        predicted = torch.cat([batch.targets[batch.targets != IGNORE] for batch in batches]).tolist()
        chars = sum(int(batch.num_chars.sum()) for batch in batches)
        assert described["splits"][name] == {"tokens": len(predicted), "chars": chars}
        text += data.tokenizer.decode(predicted)
        num_chars += chars
    assert text == "".join(TEXTS)
    assert num_chars == len(text)


def test_training_batches_hold_the_same_windows_shuffled(make: Callable[..., TextDataModule]) -> None:
    data = make()
    data.setup("fit")

    def windows(loader: Any) -> list[tuple[int, ...]]:
        return [tuple(row) for batch in loader for row in torch.cat((batch.tokens, batch.targets), 1).tolist()]

    shuffled, in_order = windows(data.train_dataloader()), windows(data._loader(data._batches("train")))
    assert shuffled != in_order
    assert sorted(shuffled) == sorted(in_order)
    assert windows(make(seed=1).train_dataloader()) not in (shuffled, in_order)


def test_what_the_model_needs_is_known_before_setup(make: Callable[..., TextDataModule]) -> None:
    data = make()
    assert data.seq_len == 16
    assert (
        data.vocab_size == data.tokenizer.vocab_size == 4 + len(set("".join(TEXTS)[: round(0.6 * len("".join(TEXTS)))]))
    )


def test_it_describes_itself(make: Callable[..., TextDataModule], folder: Path) -> None:
    described = make().describe()
    assert {key: described[key] for key in ("name", "source", "tokenizer")} == {
        "name": "text",
        "source": str(folder),
        "tokenizer": "CharTokenizer",
    }
    assert len(described["digest"]) == 64
    assert sum(split["chars"] for split in described["splits"].values()) == len("".join(TEXTS))


def test_cpythons_documentation_is_the_default(tmp_path: Path) -> None:
    described = TextDataModule(cache_dir=str(tmp_path)).describe()
    assert described["source"].startswith("pydoc_data.topics")
    assert sum(split["chars"] for split in described["splits"].values()) > 400_000


@pytest.mark.parametrize(
    "option, message",
    [
        ({"seq_len": 0}, "data.seq_len must be at least 1, got 0"),
        ({"batch_size": 0}, "data.batch_size must be at least 1, got 0"),
        ({"num_workers": -1}, "data.num_workers must be at least 0, got -1"),
        ({"seed": -1}, "data.seed must be at least 0, got -1"),
        ({"split": (0.9, 0.1, 0.1)}, "data.split must be three positive shares that sum to 1"),
        ({"split": (0.9, 0.1, 0.0)}, "data.split must be three positive shares that sum to 1"),
    ],
)
def test_a_wrong_option_is_refused(make: Callable[..., TextDataModule], option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**option)


def test_a_split_shorter_than_a_window_is_refused_with_file_and_line(
    make: Callable[..., TextDataModule], folder: Path
) -> None:
    data = make(seq_len=300, split=(0.8, 0.1, 0.1))
    with pytest.raises(
        ValueError, match=r"the val split begins at .*2\.txt, line \d+ and has \d+ tokens.* takes 301"
    ) as e:
        data.setup("fit")
    line = int(str(e.value).split("line ")[1].split()[0])
    before = "".join(TEXTS)[: round(0.8 * len("".join(TEXTS)))]
    assert line == before.count("\n") - "".join(TEXTS[:2]).count("\n") + 1 > 1


@pytest.mark.parametrize(
    "content, message",
    [
        (b"abc\xff" + b"x" * 1000, r"bad\.txt, line 1 is not UTF-8 text: byte 3"),
        (b"", r"bad\.txt is empty"),
        (b"short", r"bad\.txt, line 1"),
    ],
)
def test_bad_text_is_refused_with_file_and_byte(
    make: Callable[..., TextDataModule], tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        make(str(tmp_path / "bad.txt")).setup("fit")


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., TextDataModule]) -> None:
    check_order(make, len(make().rows("val")))


@pytest.mark.slow
def test_spawned_workers_read_the_same(make: Callable[..., TextDataModule]) -> None:
    data = make(num_workers=1)
    data.setup("fit")
    loader = data.val_dataloader()
    loader.multiprocessing_context = "spawn"
    alone = list(make().val_dataloader())
    for batch, expected in zip(loader, alone, strict=True):
        assert isinstance(batch, TokenBatch)
        assert same(batch, expected)


@pytest.mark.parametrize(
    "yaml, expected",
    [
        ([], CharTokenizer),
        (["--data.tokenizer=ByteTokenizer"], ByteTokenizer),
        (["--data.tokenizer=SubwordTokenizer", "--data.tokenizer.vocab_size=300"], SubwordTokenizer),
    ],
)
def test_it_is_built_from_a_config(folder: Path, tmp_path: Path, yaml: list[str], expected: type) -> None:
    parser = ArgumentParser()
    parser.add_class_arguments(TextDataModule, "data")
    paths = [f"--data.path=['{folder}/0.txt', '{folder}/[12].txt']", f"--data.cache_dir={tmp_path}"]
    data = parser.instantiate(parser.parse_args([*paths, *yaml])).data
    assert type(data.tokenizer) is expected
    assert sum(split["chars"] for split in data.describe()["splits"].values()) == len("".join(TEXTS))


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

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self.evaluated += [tuple(row) for row in batch.tokens.tolist()]

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        self.validation_step(batch, batch_idx)
        return batch.tokens

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = partial(quiet_trainer, Path(), use_distributed_sampler=False)


@pytest.mark.parametrize("verb, split", [("validate", "val"), ("test", "test"), ("predict", "test")])
def test_evaluation_goes_over_a_split_in_order(make: Callable[..., TextDataModule], verb: str, split: str) -> None:
    data, model = make(), Counter()
    getattr(trainer(), verb)(model, data)
    assert model.evaluated == [
        tuple(row) for batch in data._loader(data._batches(split)) for row in batch.tokens.tolist()
    ]


def test_overfitting_repeats_the_same_batches(make: Callable[..., TextDataModule]) -> None:
    model = Counter()
    trainer(overfit_batches=2, max_epochs=3).fit(model, make())
    assert len(model.windows) == 24
    assert model.windows[:8] == model.windows[8:16] == model.windows[16:]


def test_an_epoch_cut_short_is_taken_up_by_the_next(make: Callable[..., TextDataModule]) -> None:
    cut, whole = Counter(), Counter()
    trainer(limit_train_batches=3, max_epochs=4, limit_val_batches=0).fit(cut, make())
    trainer(max_epochs=2, limit_val_batches=0).fit(whole, make())
    assert cut.windows == whole.windows[: len(cut.windows)]


def test_its_state_is_plain_and_places_the_next_batch(make: Callable[..., TextDataModule]) -> None:
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


def test_a_checkpoint_of_other_data_is_refused(make: Callable[..., TextDataModule], folder: Path) -> None:
    state = {**make().state_dict(), "batch": 3}
    others = {
        "seq_len 16, this data has seq_len 8": make(seq_len=8),
        "seed 0, this data has seed 1": make(seed=1),
        r"split 0\.6, 0\.2, 0\.2, this data has split 0\.5": make(split=(0.5, 0.25, 0.25)),
        "batch_size 4, this data has batch_size 2": make(batch_size=2),
        "tokenizer [0-9a-f]{64}, this": make(tokenizer=ByteTokenizer),
        "data [0-9a-f]{64}, this data has data": make([str(folder / "0.txt"), str(folder / "1.txt")]),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=f"the checkpoint was trained with {message}"):
            other.load_state_dict(state)


def test_between_epochs_the_batches_may_change(make: Callable[..., TextDataModule]) -> None:
    small, large = make(batch_size=4), make(batch_size=9)
    large.load_state_dict({**small.state_dict(), "epoch": 3, "batches": 3 * len(small.train_dataloader())})
    assert large.position == (3, 0)


def test_other_text_may_be_evaluated_with_the_same_tokenizer(
    make: Callable[..., TextDataModule], folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "some.ckpt"
    fitted = trainer(max_steps=2, limit_val_batches=0)
    fitted.fit(Counter(), make(tokenizer=ByteTokenizer))
    fitted.save_checkpoint(path)
    other = str(folder / "1.txt")
    trainer().test(Counter(), make(other, tokenizer=ByteTokenizer), ckpt_path=path, weights_only=True)
    with pytest.raises(ValueError, match="trained with tokenizer"):
        trainer().test(Counter(), make(other), ckpt_path=path, weights_only=True)
    with pytest.raises(ValueError, match="trained with data"):
        trainer(max_steps=4).fit(Counter(), make(other, tokenizer=ByteTokenizer), ckpt_path=path, weights_only=True)


def test_splits_may_have_files_of_their_own(folder: Path, make: Callable[..., TextDataModule]) -> None:
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

    with pytest.raises(ValueError, match=r"data\.val .* beside data\.train"):
        make(None, val=first)
    with pytest.raises(ValueError, match="both given"):
        make(first, train=second)
    with pytest.raises(ValueError, match=r"2\.txt"):
        make(None, train=[first] * 30, val=third, seq_len=1000).setup("fit")
