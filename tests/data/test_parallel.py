"""ParallelTextDataModule: the batches by hand, nothing lost silently, refusals with file and line, exact resume."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from data.order import check_order
from data.test_resume import SaveAfter, fit
from seqlab.batch import IGNORE
from seqlab_data import ParallelTextDataModule
from seqlab_data.pairs import pairs_in, read_sides
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]
TRAIN = "a b c\tx y\nb\ty z z z\na\tx\n"
VAL = "c d\ty w\tz\tz y\n"


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ParallelTextDataModule]:
    """Builds a data module from these contents and options."""

    def make(train: str | bytes = TRAIN, val: str | bytes = VAL, **options: Any) -> ParallelTextDataModule:
        defaults = {
            "val": write(tmp_path, "val.tsv", val),
            "source_tokenizer": WordTokenizer,
            "target_tokenizer": WordTokenizer,
            "max_len": 10,
            "max_tokens": 100,
        }
        return ParallelTextDataModule(write(tmp_path, "train.tsv", train), **{**defaults, **options})

    return make


def test_lines_of_json_hold_pairs_and_more_references(tmp_path: Path) -> None:
    lines = [{"de": "a", "en": "x"}, {"en": ["y", "z"], "de": "b", "id": 1}]
    path = write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)))
    pairs = pairs_in(read_sides(path, ("de", "en")), ("de", "en"))
    assert pairs == [("a", ("x",), f"{path}, line 1"), ("b", ("y", "z"), f"{path}, line 2")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"source": "a"}, r"x\.jsonl, line 1 names no 'target', it names source"),
        ({"source": 1, "target": "x"}, r"x\.jsonl, line 1 has a 'source' that is not a string, or a 'target' that is"),
        ({"source": "a", "target": []}, r"x\.jsonl, line 1 has a 'source' that is not a string, or a 'target' that is"),
        ({"source": "a", "target": " "}, r"x\.jsonl, line 1 has an empty target"),
    ],
)
def test_bad_lines_of_json_are_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    path = write(tmp_path, "x.jsonl", json.dumps(line))
    with pytest.raises(ValueError, match=message):
        ParallelTextDataModule(path, val=path).setup("fit")
    with pytest.raises(ValueError, match=r"x\.jsonl has both sides of its pairs, so that it stands alone"):
        ParallelTextDataModule([path, path], val=path).setup("fit")


def random_pairs(size: int) -> str:
    rng = random.Random(size)
    words = [f"w{i}" for i in range(50)]
    side = lambda: " ".join(rng.choice(words) for _ in range(rng.randrange(1, 9)))  # noqa: E731
    return "".join(f"{side()}\t{side()}\n" for _ in range(size))


def test_a_batch_by_hand(make: Callable[..., Any]) -> None:
    data = make()
    data.setup("fit")
    assert data.source_tokenizer.words == ("a", "b", "c")  # 4, 5, 6
    assert data.tokenizer.words == ("z", "x", "y")  # 4, 5, 6
    assert (data.vocab_size, data.target_vocab_size, data.seq_len) == (7, 7, 10)
    [batch] = data.train_dataloader()
    order = torch.argsort(batch.rows)
    source, source_mask, tokens, targets, rows = (part[order].tolist() for part in batch)
    assert rows == [0, 1, 2]
    assert source == [[4, 5, 6, 2], [5, 2, 0, 0], [4, 2, 0, 0]]
    assert source_mask == [[True] * 4, [True, True, False, False], [True, True, False, False]]
    assert tokens == [[1, 5, 6, 0, 0], [1, 6, 4, 4, 4], [1, 5, 0, 0, 0]]
    no = IGNORE
    assert targets == [[5, 6, 2, no, no], [6, 4, 4, 4, 2], [5, 2, no, no, no]]
    [batch] = data.val_dataloader()
    assert batch.source.tolist() == [[6, 3, 2]]  # d is not in train
    assert batch.targets.tolist() == [[6, 3, 2]]
    assert data.references("val") == [["y w", "z", "z y"]]


def test_two_files_are_what_one_is(make: Callable[..., Any], tmp_path: Path) -> None:
    one = make()
    source = write(tmp_path, "train.en", "a b c\r\nb\r\na")
    target = write(tmp_path, "train.de", "\ufeffx y\ny z z z\nx\n")
    for train in ([source, target], f"{source},{target}", f"{source}, {target}"):
        two = ParallelTextDataModule(
            train, val=one.paths["val"], source_tokenizer=WordTokenizer, target_tokenizer=WordTokenizer, max_len=10
        )
        [batch], [expected] = two.train_dataloader(), one.train_dataloader()
        assert all(torch.equal(mine, others) for mine, others in zip(batch, expected, strict=True))
        assert two.references("train") == one.references("train") == [["x y"], ["y z z z"], ["x"]]


def test_the_tokenizers_learn_from_train_alone_jointly_or_apart(make: Callable[..., Any]) -> None:
    apart = make(source_tokenizer=CharTokenizer, target_tokenizer=WordTokenizer)
    assert set(apart.source_tokenizer.alphabet) == {*"a b c\n"}
    assert apart.tokenizer.words == ("z", "x", "y")
    joint = make(target_tokenizer=None)
    assert joint.tokenizer is joint.source_tokenizer
    assert set(joint.tokenizer.words) == {*"abcxyz"}


def test_the_second_reference_is_not_learnt_from(make: Callable[..., Any]) -> None:
    data = make(train="a\tx\tunheard\n")
    assert data.tokenizer.words == ("x",)
    assert data.references("train") == [["x", "unheard"]]


@pytest.mark.parametrize("on_long, rows", [("drop", [0, 2]), ("cut", [0, 1, 2])])
def test_long_pairs_are_dropped_or_cut_and_counted(
    make: Callable[..., ParallelTextDataModule], capsys: pytest.CaptureFixture[str], on_long: str, rows: list[int]
) -> None:
    data = make(max_len=4, on_long=on_long)  # "y z z z" is 5 with eos, "a b c" just fits
    data.setup("fit")
    reason = f"train: over 3 tokens, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == data.describe()["dropped"] == {reason: 1}
    assert capsys.readouterr().err == f"data: {reason}: 1\n"
    assert data.references("train") == [[["x y"], ["y z z z"], ["x"]][row] for row in rows]
    assert [data.place("train", k).partition(", ")[2] for k in range(len(rows))] == [f"line {row + 1}" for row in rows]
    [batch] = data.train_dataloader()
    texts = {
        row: data.tokenizer.decode(targets[targets != IGNORE].tolist())
        for row, targets in zip(batch.rows.tolist(), batch.targets, strict=True)
    }
    kept = {"drop": ["x y", "x"], "cut": ["x y", "y z z", "x"]}[on_long]
    assert [texts[i] for i in range(len(kept))] == kept
    assert (batch.targets == data.tokenizer.eos_id).sum() == len(kept)
    assert batch.tokens.shape[1] <= 4


def test_nothing_is_said_where_nothing_is_dropped(
    make: Callable[..., ParallelTextDataModule], capsys: pytest.CaptureFixture[str]
) -> None:
    data = make(on_long="drop")
    data.setup("fit")
    assert data.dropped == {}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "train, message",
    [
        ("a\tb\na b\n", r"train\.tsv, line 2 has no TAB; a line is source<TAB>target"),
        ("a\tb\n\na\tb\n", r"train\.tsv, line 2 is empty; a line is source<TAB>target"),
        ("a\tb\n\tb\n", r"train\.tsv, line 2 has an empty source"),
        ("a\tb\na\t \n", r"train\.tsv, line 2 has an empty target"),
        ("a\tb\na\tb\t\n", r"train\.tsv, line 2 has an empty target"),
        (b"a\tb\nc\xff\td\n", r"train\.tsv, line 2 is not UTF-8 text: byte 5 is 0xff"),
        ("", r"train\.tsv is empty"),
        ("a\tb\n" + "a " * 10 + "\tb\n", r"train\.tsv, line 2 has a text of 10 tokens, but data\.max_len 10 .* for 9"),
        ("a\tb\na\t" + "b " * 11, r"train\.tsv, line 2 has a text of 11 tokens"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(
    make: Callable[..., ParallelTextDataModule], train: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(train).setup("fit")


def test_files_that_do_not_fit_together_are_refused(
    make: Callable[..., ParallelTextDataModule], tmp_path: Path
) -> None:
    source, target = write(tmp_path, "a.en", "a\nb\nc\n"), write(tmp_path, "a.de", "x\ny\n")
    with pytest.raises(ValueError, match=r"a\.en has 3 lines and .*a\.de has 2, so line 3 has no counterpart"):
        make(val=VAL, test=[source, target]).setup("fit")
    with pytest.raises(ValueError, match=r"no\.de is not a file; give a file of source<TAB>target lines"):
        make(test=f"{source},{tmp_path}/no.de").setup("fit")
    with pytest.raises(ValueError, match="is not one file or two"):
        make(test=[source, source, target]).setup("fit")
    empty = write(tmp_path, "empty.de", "x\n\nz\n")
    with pytest.raises(ValueError, match=r"a\.en and .*empty\.de, line 2 has an empty target"):
        make(test=[source, empty]).setup("fit")


def test_a_split_without_rows_is_refused(make: Callable[..., ParallelTextDataModule], tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"train\.tsv: the train split has no row left, train: over 1 tokens, dropped: 2"
    ):
        make("a b\tx\nb\tx y\n", max_len=2, on_long="drop").setup("fit")
    with pytest.raises(ValueError, match=r"train\.tsv has no test split; name its file in data\.test"):
        make().test_dataloader()
    one = write(tmp_path, "one.tsv", "a\tx\n")
    with pytest.raises(ValueError, match=r"one\.tsv: 1 pair is too few for two splits by content; give data\.val$"):
        ParallelTextDataModule(one, source_tokenizer=WordTokenizer).setup("fit")


@pytest.mark.parametrize(
    "option, message",
    [
        ({"max_len": 1}, "data.max_len must be at least 2, got 1"),
        ({"max_tokens": 9}, "data.max_tokens must be at least 10, got 9"),
        ({"on_long": "warn"}, "data.on_long must be refuse, drop or cut, got warn"),
        ({"seed": -1}, "data.seed must be at least 0, got -1"),
    ],
)
def test_a_wrong_option_is_refused(
    make: Callable[..., ParallelTextDataModule], option: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**option)


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., ParallelTextDataModule]) -> None:
    check_order(partial(make, random_pairs(60), val=random_pairs(50), max_tokens=60), 50)


def test_evaluation_keeps_its_order_and_training_does_not(make: Callable[..., ParallelTextDataModule]) -> None:
    data = make(random_pairs(100), val=random_pairs(80), max_tokens=40)

    def rows(loader: Any) -> list[list[int]]:
        return [batch.rows.tolist() for batch in loader]

    assert rows(data.val_dataloader()) == rows(make(val=random_pairs(80), max_tokens=40, seed=9).val_dataloader())
    seeds = [rows(make(random_pairs(100), max_tokens=40, seed=seed).train_dataloader()) for seed in (0, 1)]
    assert rows(data.train_dataloader()) == seeds[0] != seeds[1]
    assert sorted(seeds[0]) == sorted(seeds[1])


def test_a_resumed_fit_sees_the_same_batches(make: Callable[..., ParallelTextDataModule], tmp_path: Path) -> None:
    options = {"train": random_pairs(60), "max_tokens": 40}
    n, path = len(make(**options).train_dataloader()), tmp_path / "some.ckpt"
    assert n > 5
    whole = fit("", None, SaveAfter(path, "on_train_batch_end", n + 3), data=make(**options)).seen
    assert len(whole) == 3 * n
    assert fit("", path, data=make(**options, num_workers=2)).seen == whole[n + 3 :]
    state = torch.load(path, weights_only=True)["ParallelTextDataModule"]
    assert (state["epoch"], state["batch"]) == (1, 3)


def test_a_checkpoint_of_other_data_is_refused(make: Callable[..., ParallelTextDataModule]) -> None:
    state = {**make().state_dict(), "batch": 1}
    others: dict[str, dict[str, Any]] = {
        "max_len 10, this data has max_len 12": {"max_len": 12},
        "on_long refuse, this data has on_long cut": {"on_long": "cut"},
        "max_tokens 100, this data has max_tokens 99": {"max_tokens": 99},
        "seed 0, this data has seed 1": {"seed": 1},
        "tokenizer [0-9a-f]{64}, this data has tokenizer": {"source_tokenizer": ByteTokenizer},
        "data [0-9a-f]{64}, this data has data": {"train": "a\tb\n"},
    }
    for message, options in others.items():
        with pytest.raises(ValueError, match=f"the checkpoint was trained with {message}"):
            make(**options).load_state_dict(state)
    with pytest.raises(ValueError, match="the checkpoint does not say which columns it was trained with"):
        make().load_state_dict({name: value for name, value in state.items() if name != "columns"})
    between = make(max_tokens=50)
    between.load_state_dict({**state, "epoch": 2, "batch": 0})
    assert between.position == (2, 0)


def test_a_validation_split_is_divided_off_by_source(tmp_path: Path) -> None:
    lines = [f"{i % 50} {i % 7}\t{i}\n" for i in range(2000)]  # each source several times
    path = write(tmp_path, "all.tsv", "".join(lines))
    options: dict[str, Any] = {"source_tokenizer": WordTokenizer, "val_share": 0.2}
    data = ParallelTextDataModule(path, **options)
    data.setup("fit")
    sources = {split: {pair.source for pair in some} for split, some in data._pairs.items()}
    assert set(sources) == {"train", "val"} and not sources["train"] & sources["val"]
    assert sum(len(some) for some in data._pairs.values()) == 2000
    assert 0.1 < len(sources["val"]) / 350 < 0.3
    row = 3
    line = int(str(data.place("val", row)).split()[-1])
    assert lines[line - 1].split("\t")[1].strip() == data.references("val")[row][0]

    again = ParallelTextDataModule(write(tmp_path, "turned.tsv", "".join(lines[::-1])), **options)
    assert {pair.source for pair in again._pairs["val"]} == sources["val"], "the order decides nothing"
    own = ParallelTextDataModule(path, val=path, **options)
    assert len(own._pairs["train"]) == 2000, "a split with a file of its own takes nothing of train"
    with pytest.raises(ValueError, match="val_share"):
        ParallelTextDataModule(path, val_share=1.0)
