"""ParallelTextDataModule: the batches by hand, nothing lost silently, refusals with file and line, exact resume."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.helpers import refused, write
from data.modules import parallel
from seqlab.batch import IGNORE
from seqlab_data import ParallelTextDataModule
from seqlab_data.pairs import DATES, LOCALES, dates, pairs_in, read_sides
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer

TRAIN = "a b c\tx y\nb\ty z z z\na\tx\n"
WORDS: dict[str, Any] = {"source_tokenizer": WordTokenizer, "target_tokenizer": WordTokenizer}
VAL = "c d\ty w\tz\tz y\n"


@pytest.fixture
def make(tmp_path: Path) -> Any:
    return partial(parallel, tmp_path, train=TRAIN, val=VAL, max_tokens=100)


def test_lines_of_json_hold_pairs_and_more_references(tmp_path: Path) -> None:
    lines = [{"de": "a", "en": "x"}, {"en": ["y", "z"], "de": "b", "id": 1}]
    path = write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)))
    pairs = pairs_in(read_sides(path, ("de", "en")), ("de", "en"))
    assert pairs == [("a", ("x",), f"{path}, line 1"), ("b", ("y", "z"), f"{path}, line 2")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"source": "a"}, r"x\.jsonl, line 1 has no 'target'; it has source"),
        ({"source": 1, "target": "x"}, r"x\.jsonl, line 1 has a 'source' that is not a string, or a 'target' that is"),
        ({"source": "a", "target": []}, r"x\.jsonl, line 1 has a 'source' that is not a string, or a 'target' that is"),
        ({"source": "a", "target": " "}, r"x\.jsonl, line 1 has an empty target"),
    ],
)
def test_bad_lines_of_json_are_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    path = write(tmp_path, "x.jsonl", json.dumps(line))
    with refused(message):
        ParallelTextDataModule(path, val=path).setup("fit")
    with refused(r"x\.jsonl has both sides of its pairs and must be given alone"):
        ParallelTextDataModule([path, path], val=path).setup("fit")


def test_a_batch_by_hand(make: Any) -> None:
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


def test_two_files_are_what_one_is(make: Any, tmp_path: Path) -> None:
    one = make()
    source = write(tmp_path, "train.en", "a b c\r\nb\r\na")
    target = write(tmp_path, "train.de", "\ufeffx y\ny z z z\nx\n")
    for train in ([source, target], f"{source},{target}", f"{source}, {target}"):
        two = ParallelTextDataModule(train, val=one.paths["val"], **WORDS)
        assert [pair[:2] for pair in two._pairs["train"]] == [pair[:2] for pair in one._pairs["train"]]


def test_the_tokenizers_learn_from_train_alone_jointly_or_apart(make: Any) -> None:
    apart = make(source_tokenizer=CharTokenizer, target_tokenizer=WordTokenizer)
    assert set(apart.source_tokenizer.alphabet) == {*"a b c\n"}
    assert apart.tokenizer.words == ("z", "x", "y")
    joint = make(target_tokenizer=None)
    assert joint.tokenizer is joint.source_tokenizer
    assert set(joint.tokenizer.words) == {*"abcxyz"}
    data = make(train="a\tx\tunheard\n")
    assert (data.tokenizer.words, data.references("train")) == (("x",), [["x", "unheard"]])


@pytest.mark.parametrize("on_long, rows", [("drop", [0, 2]), ("cut", [0, 1, 2])])
def test_long_pairs_are_counted(make: Any, capsys: pytest.CaptureFixture[str], on_long: str, rows: list[int]) -> None:
    data = make(max_len=4, on_long=on_long)  # "y z z z" is 5 with eos, "a b c" just fits
    data.setup("fit")
    reason = f"train: over 3 tokens, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == data.describe()["dropped"] == {reason: 1}
    assert capsys.readouterr().err == f"data: {reason}: 1\n"
    assert data.references("train") == [[["x y"], ["y z z z"], ["x"]][row] for row in rows]
    assert [data.place("train", k).partition(", ")[2] for k in range(len(rows))] == [f"line {row + 1}" for row in rows]
    batch = data.rows("train").read(np.arange(len(rows)))
    texts = [data.tokenizer.decode(targets[targets != IGNORE].tolist()) for targets in batch.targets]
    assert texts == {"drop": ["x y", "x"], "cut": ["x y", "y z z", "x"]}[on_long]
    assert (batch.targets == data.tokenizer.eos_id).sum() == len(texts)
    assert batch.tokens.shape[1] <= 4


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("a\tb\na b\n", r"train\.tsv, line 2 has no TAB; a line is source<TAB>target"),
        ("a\tb\n\na\tb\n", r"train\.tsv, line 2 is empty; a line is source<TAB>target"),
        ("a\tb\n\tb\n", r"train\.tsv, line 2 has an empty source"),
        ("a\tb\na\t \n", r"train\.tsv, line 2 has an empty target"),
        ("a\tb\na\tb\t\n", r"train\.tsv, line 2 has an empty target"),
        ("a\tb\n" + "a " * 10 + "\tb\n", r"train\.tsv, line 2 has a text of 10 tokens, but data\.max_len 10 .* for 9"),
        ("a\tb\na\t" + "b " * 11, r"train\.tsv, line 2 has a text of 11 tokens"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, train: str, message: str) -> None:
    with refused(message):
        parallel(tmp_path, train, VAL).setup("fit")


def test_files_that_do_not_fit_together_are_refused(make: Any, tmp_path: Path) -> None:
    source, target = write(tmp_path, "a.en", "a\nb\nc\n"), write(tmp_path, "a.de", "x\ny\n")
    with refused(r"a\.en has 3 lines and .*a\.de has 2, so line 3 has no counterpart"):
        make(val=VAL, test=[source, target]).setup("fit")
    with refused(r"no\.de is not a file; give a file of source<TAB>target lines"):
        make(test=f"{source},{tmp_path}/no.de").setup("fit")
    with refused("is not one file or two"):
        make(test=[source, source, target]).setup("fit")
    empty = write(tmp_path, "empty.de", "x\n\nz\n")
    with refused(r"a\.en and .*empty\.de, line 2 has an empty target"):
        make(test=[source, empty]).setup("fit")


def test_a_split_without_rows_is_refused(tmp_path: Path) -> None:
    with refused(r"train\.tsv: the train split has no row left, train: over 1 tokens, dropped: 2"):
        parallel(tmp_path, "a b\tx\nb\tx y\n", VAL, max_len=2, on_long="drop").setup("fit")
    with refused(r"train\.tsv has no test split; name its file in data\.test"):
        parallel(tmp_path, TRAIN, VAL).test_dataloader()
    with refused(r"train\.tsv: 1 pair is too few for two splits by content; give data\.val$"):
        ParallelTextDataModule(write(tmp_path, "train.tsv", "a\tx\n"), source_tokenizer=WordTokenizer).setup("fit")


def test_a_checkpoint_says_its_columns(tmp_path: Path) -> None:
    state = parallel(tmp_path).state_dict()
    with refused("the checkpoint, of an older version, does not store the columns that it was trained with"):
        parallel(tmp_path).load_state_dict({name: value for name, value in state.items() if name != "columns"})


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
    line = int(str(data.place("val", 3)).split()[-1])
    assert lines[line - 1].split("\t")[1].strip() == data.references("val")[3][0]

    again = ParallelTextDataModule(write(tmp_path, "turned.tsv", "".join(lines[::-1])), **options)
    assert {pair.source for pair in again._pairs["val"]} == sources["val"], "the order decides nothing"
    own = ParallelTextDataModule(path, val=path, **options)
    assert len(own._pairs["train"]) == 2000, "a split with a file of its own takes nothing of train"


ENGLISH = ("%m/%d/%Y", "%b %d, %Y", "%B %d, %Y", "%A, %B %d, %Y")
Pairs = dict[str, list[tuple[str, ...]]]


@pytest.fixture(scope="module", name="pairs")
def _pairs() -> Pairs:
    lines = {split: dates(split).lines() for split in DATES}
    return {
        split: [(*line.split("\t")[0].split(" ", 1), line.split("\t")[1]) for line in some]
        for split, some in lines.items()
    }


def parsed(text: str) -> set[date]:
    found = set()
    for pattern in ENGLISH:
        with suppress(ValueError):
            found.add(datetime.strptime(text, pattern).date())
    return found


def test_dates_are_of_every_locale_and_english_ones_are_what_python_reads(pairs: Pairs) -> None:
    english = [(text, iso) for locale, text, iso in pairs["train"] if locale == "en_US"]
    assert len(english) > 500
    assert all(parsed(text) == {date.fromisoformat(iso)} for text, iso in english)
    for some in pairs.values():
        assert {locale for locale, _, _ in some} == set(LOCALES)
        assert all(iso[:4] in text for _, text, iso in some), "every year has four digits"


def test_no_date_is_in_two_splits(pairs: Pairs) -> None:
    days = [{iso for _, _, iso in some} for some in pairs.values()]
    assert [len(some) for some in pairs.values()] == [30_000, 1_000, 1_000]
    assert sum(map(len, days)) == len(set.union(*days))
    assert min(set.union(*days)) < "1902" and max(set.union(*days)) > "2097"


def test_the_set_is_the_same_for_everyone() -> None:
    for split, digest in {"val": "3a7938c3ac4daf74", "test": "efc90235c840d8ee"}.items():
        assert hashlib.sha256(dates(split).content).hexdigest().startswith(digest)


def test_the_data_module_has_them_without_a_file() -> None:
    data = ParallelTextDataModule(source_tokenizer=CharTokenizer, target_tokenizer=CharTokenizer)
    data.setup("fit")
    described = data.describe()
    assert described["source"] == "dates of Unicode's CLDR"
    assert [split["pairs"] for split in described["splits"].values()] == [30_000, 1_000, 1_000]
    references, batch = data.references("test"), data.rows("test").read(np.arange(1000))
    sources = [data.source_tokenizer.decode(source.tolist()) for source in batch.source]
    found = [f"{source}\t{reference}" for source, [reference] in zip(sources, references, strict=True)]
    assert found == dates("test").lines()
    assert batch.source_mask.sum() == described["splits"]["test"]["source_tokens"]
    sizes = [max(batch.source.numel(), batch.tokens.numel()) for batch in data.val_dataloader()]
    assert 0.9 * 4096 < max(sizes) <= 4096, "the size of a batch by default"
    with refused(r"data.train must name a file if data.val or data.test does"):
        ParallelTextDataModule(val="val.tsv")
