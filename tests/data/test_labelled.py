"""LabelledTextDataModule: every format by hand, no text in two splits, refusals with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
from jsonargparse import ArgumentParser

from data.order import check_order
from seqlab.config.configs import import_blocks
from seqlab_data import LabelledTextDataModule
from seqlab_data.labelled import Example, read_examples
from seqlab_data.splits import split_examples
from seqlab_data.tokenizers import ByteTokenizer, WordTokenizer

ROWS = [("good film", "pos"), ('a "bad" film, so bad', "neg"), ("films", "pos")]


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def as_csv(rows: list[tuple[str, str]]) -> str:
    return "id,label,text\r\n" + "".join(
        f'{i},{label},"{text.replace(chr(34), chr(34) * 2)}"\r\n' for i, (text, label) in enumerate(rows)
    )


def as_tsv(rows: list[tuple[str, str]]) -> str:
    return "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)


def as_json_lines(rows: list[tuple[str, str]]) -> str:
    return "\n".join(json.dumps({"label": label, "text": text, "more": [1]}) for text, label in rows)


def as_lines(rows: list[tuple[str, str]]) -> str:
    return "".join(f"{label} {text}\n" for text, label in rows)


FORMATS: dict[str, Callable[[list[tuple[str, str]]], str]] = {
    "x.csv": as_csv,
    "x.TSV": as_tsv,
    "x.jsonl": as_json_lines,
    "x.train": as_lines,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_examples(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "\ufeff" + FORMATS[name](ROWS))
    examples, _ = read_examples(path, text="text", label="label")
    first = 2 if name in ("x.csv", "x.TSV") else 1
    assert examples == [Example(*row, f"{path}, line {first + i}") for i, row in enumerate(ROWS)]


def test_a_label_ends_with_a_space_or_a_tab(tmp_path: Path) -> None:
    path = write(tmp_path, "x.txt", "ham\tsee you\nspam  win now\n")
    examples, _ = read_examples(path, text="text", label="label")
    assert [example[:2] for example in examples] == [("see you", "ham"), (" win now", "spam")]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", f"text,label\n{'word ' * 200_000},a\n")
    [example], _ = read_examples(path, text="text", label="label")
    assert len(example.text) == 1_000_000


def test_a_folder_has_a_file_for_each_label(tmp_path: Path) -> None:
    for label in ("pos", "neg"):
        texts = [text for text, of in ROWS if of == label]
        write(tmp_path, f"{label}.txt", "\n".join(texts) + "\n")
    write(tmp_path, "README.md", "no label\n")
    write(tmp_path, ".hidden.txt", "no label\n")
    examples, files = read_examples(str(tmp_path), text="-", label="-")
    assert [(example.text, example.label) for example in examples] == [ROWS[1], ROWS[0], ROWS[2]]
    assert [Path(file.name).name for file in files] == ["neg.txt", "pos.txt"]


def test_columns_may_have_other_names_and_labels_may_be_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "x.jsonl", '{"s": "one", "y": 1}\n{"s": "two", "y": true}\n')
    examples, _ = read_examples(path, text="s", label="y")
    assert [example[:2] for example in examples] == [("one", "1"), ("two", "true")]


def test_a_quoted_cell_may_hold_lines_and_errors_name_the_line_where_a_row_begins(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", 'text,label\n"a\nb",x\nc,y\n"d\ne"\n')
    with pytest.raises(ValueError, match=r"x\.csv, line 5 has 1 columns, the first line has 2"):
        read_examples(path, text="text", label="label")
    path = write(tmp_path, "y.csv", 'text,label\n"a\nb",x\nc,y\n')
    assert read_examples(path, text="text", label="label")[0] == [
        Example("a\nb", "x", f"{path}, line 2"),
        Example("c", "y", f"{path}, line 4"),
    ]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.csv", "text,class\na,b\n", r"x\.csv, line 1 has no column label, it has text, class"),
        ("x.csv", "text,label\na,b\n\nc,d\n", r"x\.csv, line 3 has 0 columns, the first line has 2"),
        ("x.csv", 'text,label\na,b\n"c"d,e\n', r"x\.csv, line 3 is not a row of a table"),
        ("x.tsv", "text\tlabel\na\n", r"x\.tsv, line 2 has 1 columns"),
        ("x.tsv", "text\tlabel\n\tb\n", r"x\.tsv, line 2 has an empty text"),
        ("x.tsv", "text\tlabel\na\t \n", r"x\.tsv, line 2 has an empty label"),
        ("x.jsonl", '{"text": "a", "label": "b"}\n{"text"\n', r"x\.jsonl, line 2 is not JSON"),
        ("x.jsonl", '{"text": "a"}\n', r"x\.jsonl, line 1 names no 'label', it names text"),
        ("x.jsonl", "[1]\n", r"x\.jsonl, line 1 names no 'text', it names nothing"),
        ("x.jsonl", '{"text": 7, "label": "b"}\n', r"x\.jsonl, line 1 has a 'text' that is not a string, but 7"),
        ("x.jsonl", '{"text": "a", "label": 0.5}\n', r"x\.jsonl, line 1 has a 'label' that is no string or integer"),
        ("x.jsonl", '{"text": "a\\ud800", "label": 1}', r"x\.jsonl, line 1 holds a lone surrogate"),
        ("x.csv", "\ufeff", r"x\.csv is empty but for a byte-order mark"),
        (
            "x.dev",
            "1 a\n1\n",
            r"x\.dev, line 2 has no space and no TAB; a line is a label, a space or",
        ),
        ("x.dev", "1 a\n\n1 b\n", r"x\.dev, line 2 is empty; a line is a label, a space or a TAB, and a text"),
        ("x.dev", "1 a\n1 \n", r"x\.dev, line 2 has an empty text"),
        ("x.dev", b"1 a\n1 \xff\n", r"x\.dev, line 2 is not UTF-8 text: byte 6 is 0xff"),
        ("x.dev", "", r"x\.dev is empty"),
        ("x.csv", "text,label\n", r"x\.csv has no row below the names of its columns; give rows"),
        ("x.csv", "text,label,text\na,b,c\n", r"x\.csv, line 1 has two columns text, it has text, label, text"),
        ("x.csv", 'text,label\na,"b\nc"\n', r"x\.csv, line 2 has the label 'b\\nc'; a label begins and ends with"),
        ("x.csv", "text,label\na,b\tc\n", r"x\.csv, line 2 has the label 'b\\tc'"),
        ("x.csv", "text,label\na, b\n", r"x\.csv, line 2 has the label ' b'"),
        ("x.jsonl", '{"text": "a", "label": "b", "text": "c"}\n', r"x\.jsonl, line 1 has two values named 'text'"),
        ("x.json", '[\n{"text": "a", "label": "b"}\n]\n', r"x\.json, line 1 is JSON; give a \.jsonl file"),
        ("x.json", '{"text": "a", "label": "b"}\n', r"x\.json, line 1 is JSON; give a \.jsonl file"),
        ("x.dev", "text label\na b\n", r"x\.dev, line 1 names columns; give the file a name that ends with \.tsv"),
        ("x.dev", "good film\tpos\n", r"x\.dev, line 1 has a TAB in its text, so that its label may be another"),
        ("x.dev", "pos\u00a0a film\n", r"x\.dev, line 1 has the label 'pos\\xa0a'"),
        (
            "x.dev",
            "__label__a b\n__label__a __label__b c\n",
            r"line 2 has the label __label__b in its text; a line has",
        ),
        ("x.dev", "__label__a b\nc d\n", r"x\.dev, line 2 has the label 'c', unlike line 1"),
        ("x.dev", "good film __label__a\n", r"x\.dev, line 1 has the label __label__a in its text"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_examples(write(tmp_path, name, content), text="text", label="label")


def test_a_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.csv is not a file; give a \.csv, \.tsv or \.jsonl file"):
        read_examples(str(tmp_path / "no.csv"), text="text", label="label")
    with pytest.raises(ValueError, match=r"has no LABEL\.txt file"):
        read_examples(str(tmp_path), text="text", label="label")


def examples_of(texts: list[str]) -> list[Example]:
    return [Example(text, "x", f"line {i}") for i, text in enumerate(texts)]


def test_equal_texts_are_in_one_split_whatever_their_order_and_labels() -> None:
    texts = [f"text {i % 700}" for i in range(2000)]
    shares = {"train": 0.6, "val": 0.3, "test": 0.1}
    splits = split_examples(examples_of(texts), shares)
    of = {name: {example.text for example in some} for name, some in splits.items()}
    assert sum(map(len, splits.values())) == 2000
    assert sum(map(len, of.values())) == 700  # no text is in two
    for name, share in shares.items():
        assert abs(len(of[name]) / 700 - share) < 5 * (share * (1 - share) / 700) ** 0.5
    again = split_examples([Example(text, "y", "") for text in reversed(texts)], shares)
    assert {name: {example.text for example in some} for name, some in again.items()} == of


def test_the_division_is_frozen() -> None:
    """Stored values: were they to change, runs could no longer be compared."""
    splits = split_examples(examples_of([f"text {i}" for i in range(20)]), {"train": 0.4, "val": 0.3, "test": 0.3})
    assert {name: [int(example.text[5:]) for example in some] for name, some in splits.items()} == {
        "train": [3, 6, 7, 10, 11, 12, 13, 14, 17, 19],
        "val": [0, 1, 2, 5, 9, 15, 16, 18],
        "test": [4, 8],
    }


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., LabelledTextDataModule]:
    """Builds a data module from these rows and options; val defaults to train."""

    def make(
        train: list[tuple[str, str]] = ROWS, val: list[tuple[str, str]] | None = None, **options: Any
    ) -> LabelledTextDataModule:
        paths = {"val": write(tmp_path, "val.csv", as_csv(val or train)), "test": None}
        paths["test"] = paths["val"]
        defaults = {**paths, "max_len": 10, "max_tokens": 100}
        return LabelledTextDataModule(write(tmp_path, "train.tsv", as_tsv(train)), **{**defaults, **options})

    return make


def test_a_batch_by_hand(make: Callable[..., Any]) -> None:
    data = make(val=[("bad film unseen", "pos"), ("bad", "neg")])
    data.setup("fit")
    # Each occurs once.
    assert data.tokenizer.words == ('"bad"', "a", "bad", "film", "film,", "films", "good", "so")
    assert data.labels == ["neg", "pos"]
    assert (data.num_classes, data.seq_len, data.vocab_size) == (2, 10, 4 + 8)
    [batch] = data.val_dataloader()
    bad, film = data.tokenizer.encode("bad film")
    assert batch.inputs.tolist() == [[bad, film, 3], [bad, 0, 0]]
    assert batch.pad_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets.tolist() == [1, 0]


def test_a_split_with_a_path_takes_nothing_of_train(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(400)]
    train, test = write(tmp_path, "x.train", as_lines(rows)), write(tmp_path, "x.test", as_lines(rows[:7]))

    def sizes(**paths: Any) -> dict[str, int]:
        data = LabelledTextDataModule(train, split=(0.5, 0.3, 0.2), **paths)
        return {name: split["texts"] for name, split in data.describe()["splits"].items()}

    three, two = sizes(), sizes(test=test)
    assert sum(three.values()) == 400
    assert all(abs(three[name] - 400 * share) < 50 for name, share in {"train": 0.5, "val": 0.3, "test": 0.2}.items())
    assert two["test"] == 7
    assert two["train"] + two["val"] == 400
    assert abs(two["train"] - 400 * 0.5 / 0.8) < 50
    assert sizes(val=test, test=test) == {"train": 400, "val": 7, "test": 7}


def test_a_label_that_train_lacks_is_refused(make: Callable[..., LabelledTextDataModule]) -> None:
    with pytest.raises(
        ValueError, match=r"val\.csv, line 3 has the label 'mixed', which the train split lacks; .* neg, pos"
    ):
        make(val=[("film", "pos"), ("film", "mixed")]).setup("fit")


def test_a_file_that_is_too_small_to_be_divided_says_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, "few.txt", "a one\nb two\na three\nb four\n")
    with pytest.raises(
        ValueError, match=r"few\.txt: 4 texts are too few for three splits by content; give data\.val a"
    ):
        LabelledTextDataModule(path).setup("fit")
    with pytest.raises(ValueError, match=r"few\.txt: 4 texts are too few for two splits by content; give data\.val$"):
        LabelledTextDataModule(path, test=path, split=(0.98, 0.01, 0.01)).setup("fit")
    same = write(tmp_path, "same.txt", "a one\nb one\n" * 20)
    with pytest.raises(
        ValueError, match=r"same\.txt: 40 texts, 1 if equal ones are counted once, are too few for three"
    ):
        LabelledTextDataModule(same).setup("fit")
    one = write(tmp_path, "one.txt", "a one\na two\n")
    with pytest.raises(ValueError, match=r"one\.txt: the train split has no label but 'a'; give examples of two at le"):
        LabelledTextDataModule(one, val=path, test=path).setup("fit")


def test_the_tokenizer_learns_from_train_alone(tmp_path: Path) -> None:
    rows = [(f"word{i}", "ab"[i % 2]) for i in range(100)]
    data = LabelledTextDataModule(write(tmp_path, "x", as_lines(rows)), split=(0.5, 0.25, 0.25))
    assert isinstance(data.tokenizer, WordTokenizer)
    assert len(data.tokenizer.words) == data.describe()["splits"]["train"]["texts"] < 75
    assert all((batch.inputs == 3).all() for batch in data.val_dataloader())


@pytest.mark.parametrize(
    "on_long, texts", [("drop", ["good film", "films"]), ("cut", ["good film", 'a "bad"', "films"])]
)
def test_long_texts_are_dropped_or_cut_and_counted(
    make: Callable[..., LabelledTextDataModule],
    capsys: pytest.CaptureFixture[str],
    on_long: str,
    texts: list[str],
) -> None:
    data = make(max_len=2, on_long=on_long, val=ROWS[:1])
    data.setup("fit")
    reason = f"train: over 2 tokens, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == data.describe()["dropped"] == {reason: 1}
    assert capsys.readouterr().err == f"data: {reason}: 1\n"
    [batch] = data.train_dataloader()
    assert [data.tokenizer.decode(ids) for ids in batch.inputs.tolist()] == texts


def test_a_long_text_is_refused_by_default(make: Callable[..., LabelledTextDataModule]) -> None:
    with pytest.raises(ValueError, match=r"train\.tsv, line 3 has a text of 5 tokens, but data\.max_len 4 .* for 4"):
        make(max_len=4).setup("fit")


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., LabelledTextDataModule]) -> None:
    rows = [(f"w{i} " * (1 + i % 9), "ab"[i % 2]) for i in range(50)]
    check_order(partial(make, rows, max_tokens=20), 50)


def test_other_max_tokens_are_other_batches(make: Callable[..., LabelledTextDataModule]) -> None:
    rows = [(f"w{i} " * (1 + i % 9), "ab"[i % 2]) for i in range(50)]
    data = make(rows, max_tokens=20)
    for max_tokens in (20, 60):
        data.max_tokens = max_tokens  # as between epochs, or by Lightning's BatchSizeFinder
        found = data.groups("train")
        assert [*map(list, found)] == [*map(list, make(rows, max_tokens=max_tokens).groups("train"))]
        lengths = data.rows("train").lengths
        assert max(len(group) * int(lengths[group].max()) for group in found) in range(max_tokens - 9, max_tokens + 1)


def test_other_labels_are_refused_where_nothing_is_fitted_too(make: Callable[..., LabelledTextDataModule]) -> None:
    options: dict[str, Any] = {"tokenizer": ByteTokenizer, "max_len": 50}
    state = make(**options).state_dict()
    testing = {"state": SimpleNamespace(fn="test"), "distributed_sampler_kwargs": None}
    other = make([("good film", "pos"), ("x", "zz")], **options)
    other.trainer = SimpleNamespace(**testing)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="trained with labels neg, pos, this data has labels pos, zz"):
        other.load_state_dict(state)
    same = make(ROWS[:2], **options)
    same.trainer = SimpleNamespace(**testing)  # type: ignore[assignment]
    same.load_state_dict(state)
    same.trainer = None
    with pytest.raises(ValueError, match="trained with data"):
        same.load_state_dict(state)


@pytest.mark.parametrize("name", ["LabelledTextDataModule", "ParallelTextDataModule"])
def test_its_short_name_resolves(name: str) -> None:
    import_blocks()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    options = ["--data.train=a", "--data.val=b", "--data.on_long=cut", "--data.seed=3"]
    data = parser.instantiate(parser.parse_args([f"--data={name}", *options])).data
    assert (type(data).__name__, data.paths, data.on_long, data.seed) == (name, {"train": "a", "val": "b"}, "cut", 3)
