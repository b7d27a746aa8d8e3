"""LabelledTextDataModule: every format by hand, no text in two splits, refusals with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.helpers import check_divided, refused, write
from data.modules import labelled
from seqlab_data import LabelledTextDataModule
from seqlab_data.labelled import Example, read_examples
from seqlab_data.splits import split_examples

Rows = list[tuple[str, str]]
Make = Callable[..., LabelledTextDataModule]
ROWS = [("good film", "pos"), ('a "bad" film, so bad', "neg"), ("films", "pos")]
read = partial(read_examples, text="text", label="label")


def as_csv(rows: Rows) -> str:
    cells = [(text.replace('"', '""').replace("\n", "\r\n"), label) for text, label in rows[:1]]
    cells += [(text.replace('"', '""'), label) for text, label in rows[1:]]
    return "id,label,text\r\n" + "".join(f'{i},{label},"{text}"\r\n' for i, (text, label) in enumerate(cells))


def as_tsv(rows: Rows) -> str:
    return "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)


def as_json_lines(rows: Rows) -> str:
    return "\n".join(json.dumps({"label": label, "text": text, "more": [1]}) for text, label in rows)


def as_lines(rows: Rows) -> str:
    return "".join(f"{label} {text}\n" for text, label in rows)


FORMATS = {"x.csv": as_csv, "x.TSV": as_tsv, "x.jsonl": as_json_lines, "x.train": as_lines}
some_texts = st.text(st.characters(exclude_characters="\0\r\t", exclude_categories=["Cs"])).filter(str.strip)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labelled")


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60)
@given(rows=st.lists(st.tuples(some_texts, st.sampled_from(["pos", "neg", "ü,-1"])), min_size=1, max_size=6))
@example(rows=ROWS)
@example(rows=[("word " * 200_000, "a")])
def test_every_format_gives_the_same_examples(folder: Path, name: str, rows: Rows) -> None:
    lines = name in ("x.csv", "x.jsonl")  # which may have line ends in a text
    rows = [(text if lines else text.replace("\n", "") or "x", label.replace(",", "")) for text, label in rows]
    path = write(folder, name, "\ufeff" + FORMATS[name](rows))
    line = 2 if name in ("x.csv", "x.TSV") else 1
    expected = []
    for text, label in rows:
        expected.append(Example(text, label, f"{path}, line {line}"))
        line += 1 + (name == "x.csv") * text.count("\n")
    assert read(path)[0] == expected


def test_a_label_ends_with_a_space_or_a_tab(tmp_path: Path) -> None:
    examples, _ = read(write(tmp_path, "x.txt", "ham\tsee you\nspam  win now\n"))
    assert [example[:2] for example in examples] == [("see you", "ham"), (" win now", "spam")]


def test_a_folder_has_a_file_for_each_label(tmp_path: Path) -> None:
    with refused(r"has no LABEL\.txt file"):
        read(str(tmp_path))
    for label in ("pos", "neg"):
        write(tmp_path, f"{label}.txt", "".join(f"{text}\n" for text, of in ROWS if of == label))
    write(tmp_path, "README.md", "no label\n")
    write(tmp_path, ".hidden.txt", "no label\n")
    examples, files = read(str(tmp_path))
    assert [(example.text, example.label) for example in examples] == [ROWS[1], ROWS[0], ROWS[2]]
    assert [Path(file.name).name for file in files] == ["neg.txt", "pos.txt"]


def test_columns_may_have_other_names_and_labels_may_be_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "x.jsonl", '{"s": "one", "y": 1}\n{"s": "two", "y": true}\n')
    examples, _ = read_examples(path, text="s", label="y")
    assert [example[:2] for example in examples] == [("one", "1"), ("two", "true")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "text,class\na,b\n", r"x\.csv, line 1 has no column label; it has text, class"),
        ("x.csv", "text,label\na,b\n\nc,d\n", r"x\.csv, line 3 has 0 columns, the first line has 2"),
        ("x.csv", 'text,label\n"a\nb",x\nc,y\n"d\ne"\n', r"x\.csv, line 5 has 1 columns, the first line has 2"),
        ("x.csv", 'text,label\na,b\n"c"d,e\n', r"x\.csv, line 3 is not a row of a table"),
        ("x.tsv", "text\tlabel\na\n", r"x\.tsv, line 2 has 1 columns"),
        ("x.tsv", "text\tlabel\n\tb\n", r"x\.tsv, line 2 has an empty text"),
        ("x.tsv", "text\tlabel\na\t \n", r"x\.tsv, line 2 has an empty label"),
        ("x.jsonl", '{"text": "a", "label": "b"}\n{"text"\n', r"x\.jsonl, line 2 is not JSON"),
        ("x.jsonl", '{"text": "a"}\n', r"x\.jsonl, line 1 has no 'label'; it has text"),
        ("x.jsonl", '{"text": 7, "label": "b"}\n', r"x\.jsonl, line 1 has the text 7, which is not a string"),
        (
            "x.jsonl",
            '{"text": "a", "label": 0.5}\n',
            r"x\.jsonl, line 1 has the label 0.5, which is neither a string nor an integer",
        ),
        ("x.dev", "1 a\n1\n", r"x\.dev, line 2 has no space and no TAB; a line is a label, a space or"),
        ("x.dev", "1 a\n\n1 b\n", r"x\.dev, line 2 is empty; a line is a label, a space or a TAB, and a text"),
        ("x.dev", "1 a\n1 \n", r"x\.dev, line 2 has an empty text"),
        ("x.csv", 'text,label\na,"b\nc"\n', r"x\.csv, line 2 has the label 'b\\nc'; a label begins and ends with"),
        ("x.csv", "text,label\na,b\tc\n", r"x\.csv, line 2 has the label 'b\\tc'"),
        ("x.json", '[\n{"text": "a", "label": "b"}\n]\n', r"x\.json, line 1 is JSON; give a \.jsonl file"),
        ("x.json", '{"text": "a", "label": "b"}\n', r"x\.json, line 1 is JSON; give a \.jsonl file"),
        ("x.dev", "text label\na b\n", r"x\.dev, line 1 names columns; give the file a name that ends with \.tsv"),
        ("x.dev", "good film\tpos\n", r"x\.dev, line 1 has a TAB in its text, which makes its label ambiguous"),
        (
            "x.dev",
            "__label__a b\n__label__a __label__b c\n",
            "line 2 has the label __label__b in its text; a line begins",
        ),
        ("x.dev", "__label__a b\nc d\n", r"x\.dev, line 2 has the label 'c', unlike line 1"),
        ("x.dev", "good film __label__a\n", r"x\.dev, line 1 has the label __label__a in its text"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with refused(message):
        read(write(tmp_path, name, content))
    with refused(r"no\.csv is not a file; give a \.csv, \.tsv or \.jsonl file"):
        read(str(tmp_path / "no.csv"))


def test_equal_texts_are_in_one_split_whatever_their_order_and_labels() -> None:
    texts, found = [f"text {i % 300}" for i in range(600)], []
    for some, label in ((texts, "x"), (texts[::-1], "y")):
        splits = split_examples([Example(text, label, "") for text in some], {"train": 0.6, "val": 0.3, "test": 0.1})
        found.append({name: sorted(example.text for example in part) for name, part in splits.items()})
    check_divided(found[0])
    assert found[0] == found[1]


def test_the_division_is_frozen() -> None:
    """Stored values: were they to change, runs could no longer be compared."""
    examples = [Example(f"text {i}", "x", "") for i in range(20)]
    splits = split_examples(examples, {"train": 0.4, "val": 0.3, "test": 0.3})
    assert {name: [int(example.text[5:]) for example in some] for name, some in splits.items()} == {
        "train": [3, 6, 7, 10, 11, 12, 13, 14, 17, 19],
        "val": [0, 1, 2, 5, 9, 15, 16, 18],
        "test": [4, 8],
    }


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return partial(labelled, tmp_path, ROWS)


def test_a_batch_by_hand(make: Make) -> None:
    data = make(val=[("bad film unseen", "pos"), ("bad", "neg")])
    data.setup("fit")
    # Each occurs once.
    assert getattr(data.tokenizer, "words", ()) == ('"bad"', "a", "bad", "film", "film,", "films", "good", "so")
    assert data.labels == ["neg", "pos"]
    assert (data.num_classes, data.seq_len, data.vocab_size) == (2, 10, 4 + 8)
    [batch] = data.val_dataloader()
    bad, film = data.tokenizer.encode("bad film")
    assert batch.inputs.tolist() == [[bad, film, 3], [bad, 0, 0]]
    assert batch.pad_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets.tolist() == [1, 0]


def test_a_split_with_a_path_takes_nothing_of_train(tmp_path: Path) -> None:
    rows = [(f"text{i}", "ab"[i % 2]) for i in range(400)]
    train, test = write(tmp_path, "x.train", as_lines(rows)), write(tmp_path, "x.test", as_lines(rows[:7]))

    data = LabelledTextDataModule(train, split=(0.5, 0.3, 0.2), test=test)
    texts = {name: split["texts"] for name, split in data.describe()["splits"].items()}
    assert texts["test"] == 7 and texts["train"] + texts["val"] == 400
    assert abs(texts["train"] - 400 * 0.5 / 0.8) < 50
    assert len(getattr(data.tokenizer, "words", ())) == texts["train"], "the tokenizer learns from train alone"


def test_splits_that_lack_something_are_refused(make: Make, tmp_path: Path) -> None:
    with refused(r"val\.tsv, line 3 has the label 'mixed', which the train split lacks; .* neg, pos"):
        make(val=[("film", "pos"), ("film", "mixed")]).setup("fit")
    path = write(tmp_path, "few.txt", "a one\nb two\na three\nb four\n")
    same, one = write(tmp_path, "same.txt", "a one\nb one\n" * 20), write(tmp_path, "one.txt", "a one\na two\n")
    cases: list[tuple[str, dict[str, Any], str]] = [
        (path, {}, r"few\.txt: 4 texts are too few for three splits by content; give data\.val a"),
        (path, {"test": path, "split": (0.98, 0.01, 0.01)}, "4 texts are too few for two splits by .*give data.val$"),
        (same, {}, r"same\.txt: 40 texts, 1 without duplicates, are too few for three"),
        (
            one,
            {"val": path, "test": path},
            r"one\.txt: the train split has only the label 'a'; give examples of at least two",
        ),
    ]
    for file, options, message in cases:
        with refused(message):
            LabelledTextDataModule(file, **options).setup("fit")
