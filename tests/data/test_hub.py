"""Hugging Face datasets from a folder: what each data module reads of one, by hand, and refusals. No network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Translation, Value

from data.helpers import refused
from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TaggedTextDataModule, TextDataModule
from seqlab_data.documents import find_documents
from seqlab_data.tokenizers import ByteTokenizer, WordTokenizer

FEATURES = Features(
    {
        "sentence": Value("string"),
        "label": ClassLabel(names=["neg", "pos"]),
        "words": List(Value("string")),
        "ner": List(ClassLabel(names=["O", "B-PER"])),
        "translation": Translation(languages=["de", "en"]),
        "number": Value("int64"),
    }
)
TRAIN: dict[str, list[Any]] = {
    "sentence": ["good\nfilm", "bad"],
    "label": [1, 0],
    "words": [["Ada", "sleeps"], ["no"]],
    "ner": [[1, 0], [0]],
    "translation": [{"de": "gut", "en": "good"}, {"de": "nein", "en": "no"}],
    "number": [3, 5],
}
TEST = {name: values[:1] for name, values in TRAIN.items()}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    splits = {"train": TRAIN, "test": TEST}
    saved = DatasetDict({name: Dataset.from_dict(rows, features=FEATURES) for name, rows in splits.items()})
    saved.save_to_disk(path := tmp_path_factory.mktemp("hub") / "some")
    return f"hf:{path}"


def paths(folder: str) -> dict[str, Any]:
    return {"train": f"{folder}@train", "val": f"{folder}@test", "test": f"{folder}@test", "max_len": 8}


def test_labelled_texts_have_the_names_of_their_classes(folder: str) -> None:
    data = LabelledTextDataModule(**paths(folder), text="sentence")
    data.setup("fit")
    assert data.labels == ["neg", "pos"]
    assert [example[:2] for example in data._examples["train"]] == [("good\nfilm", "pos"), ("bad", "neg")]
    assert [split["texts"] for split in data.describe()["splits"].values()] == [2, 1, 1]
    [batch] = data.val_dataloader()
    assert (data.tokenizer.decode(batch.inputs[0].tolist()), batch.targets.tolist()) == ("good film", [1])
    numbers = LabelledTextDataModule(**paths(folder), text="sentence", label="number")
    assert numbers.labels == ["3", "5"] and numbers._digest != data._digest


def test_tagged_texts(folder: str) -> None:
    data = TaggedTextDataModule(**paths(folder), columns=("words", "ner"))
    data.setup("fit")
    assert data.labels == ["B-PER", "O"]
    assert [(one.words, one.tags, one.place_of(len(one.words) - 1)) for one in data._examples["train"]] == [
        (("Ada", "sleeps"), ("B-PER", "O"), f"{folder}@train, line 1"),
        (("no",), ("O",), f"{folder}@train, line 2"),
    ]


def test_pairs_are_of_columns_within_columns(folder: str) -> None:
    data = ParallelTextDataModule(
        **paths(folder), columns=("translation.de", "translation.en"), source_tokenizer=WordTokenizer
    )
    data.setup("fit")
    assert [pair[:2] for pair in data._pairs["train"]] == [("gut", ("good",)), ("nein", ("no",))]
    assert data.references("test") == [["good"]]


def test_a_split_that_is_alone_needs_no_name(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": [f"text {i}" for i in range(90)], "label": [f"{i % 2}" for i in range(90)]})
    rows.save_to_disk(tmp_path / "one")
    DatasetDict({"all": rows}).save_to_disk(tmp_path / "of one")
    one, of_one = (LabelledTextDataModule(f"hf:{tmp_path / name}") for name in ("one", "of one"))
    assert sum(map(len, one._examples.values())) == 90
    assert one._digest == of_one._digest == LabelledTextDataModule(f"hf:{tmp_path / 'of one'}@all")._digest


@pytest.mark.parametrize(
    ("split", "options", "message"),
    [
        ("", {}, r"some names no split of the dataset, which has train, test; give hf:NAME\[:CONFIG\]\[@SPLIT\]"),
        ("@valid", {}, r"some@valid names no split of the dataset, which has train, test"),
        ("@train", {"text": "review"}, r"some@train has no column review; it has sentence, label, words, ner, transl"),
        ("@train", {"text": "number"}, r"some@train, line 1 has the number 3, which is not a string"),
    ],
)
def test_what_is_not_there_is_refused(folder: str, split: str, options: dict[str, Any], message: str) -> None:
    with refused(message):
        LabelledTextDataModule(f"{folder}{split}", **{"text": "sentence"} | options).setup("fit")


@pytest.mark.parametrize(("label", "shown"), [(-1, "-1"), (None, "None")])
def test_a_class_without_a_name_is_refused(tmp_path: Path, label: int | None, shown: str) -> None:
    """Test splits of benchmarks hide their labels like this."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    Dataset.from_dict({"text": ["a", "b"], "label": [1, label]}, features=features).save_to_disk(tmp_path / "x")
    with refused(rf"x, line 2 has the class {shown} in label; its classes are 0 to 1"):
        LabelledTextDataModule(f"hf:{tmp_path / 'x'}").setup("fit")


def test_what_is_no_dataset_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(r"hf:.* cannot be read: .*neither a `Dataset` directory.*; give hf:NAME"):
        LabelledTextDataModule(f"hf:{tmp_path}").setup("fit")
    none = Dataset.from_dict({"text": [], "label": []})
    none.save_to_disk(tmp_path / "none")
    with refused(r"none cannot be read: "):
        LabelledTextDataModule(f"hf:{tmp_path / 'none'}").setup("fit")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: DatasetDict({"train": none}))
    with refused(r"hf:none has no row; give hf:NAME"):
        LabelledTextDataModule("hf:none").setup("fit")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused(r"hf:x needs Hugging Face's datasets: pip install 'seqlab\[hf\]'"):
        LabelledTextDataModule("hf:x").setup("fit")


def test_a_name_and_its_config_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def load_dataset(name: str, config: str | None) -> DatasetDict:
        asked.append((name, config))
        return DatasetDict({"train": Dataset.from_dict({"text": ["a"], "label": ["x"]})})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for path in ("hf:who/what:config@train", "hf:who/what"):
        assert len(LabelledTextDataModule(path, val=path, test=path)._examples["train"]) == 1
    assert set(asked) == {("who/what", "config"), ("who/what", None)}


COLUMNS: dict[Any, dict[str, Any]] = {
    LabelledTextDataModule: {"text": "sentence"},
    TaggedTextDataModule: {"columns": ("words", "ner")},
    ParallelTextDataModule: {"columns": ("sentence", "translation.en"), "source_tokenizer": WordTokenizer},
}


@pytest.mark.parametrize(("module", "columns"), COLUMNS.items())
def test_each_split_is_read_once(folder: str, module: Any, columns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_from_disk", load := Mock(wraps=datasets.load_from_disk))
    data = module(**paths(folder), **columns)
    data.setup("fit")
    assert data.describe() and data.state_dict() and load.call_count == 3


def test_a_column_of_texts_is_one_document_a_row_a_line(tmp_path: Path) -> None:
    Dataset.from_dict({"text": ["eïn Satz", "", "noch\n"]}).save_to_disk(tmp_path / "lines")
    path = f"hf:{tmp_path / 'lines'}"
    [document] = find_documents(path)
    assert document.read() == "eïn Satz\n\nnoch\n"
    data = TextDataModule(path, seq_len=2, tokenizer=ByteTokenizer, split=(0.4, 0.3, 0.3))
    data.setup("fit")
    assert data.describe()["source"] == path
    chars = [split["chars"] for split in data.describe()["splits"].values()]
    assert sum(chars) == len(document.read())
    with refused(r"the val split begins at hf:.*lines, line 3 and has 3 tokens"):
        TextDataModule(path, seq_len=9, tokenizer=ByteTokenizer, split=(0.8, 0.1, 0.1), encoding="utf-16").setup("fit")
    for name, rows, shown in (
        ("numbers", [3], "line 1 has the text 3"),
        ("gaps", ["a", "é\n", None], "line 3 has the text None"),
    ):
        Dataset.from_dict({"text": rows}).save_to_disk(tmp_path / name)
        with refused(rf"{name}, {shown}, which is not a string"):
            TextDataModule(f"hf:{tmp_path / name}").setup("fit")
