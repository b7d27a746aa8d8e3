"""TableDataModule: every format and target by hand, a split that leaks nothing, the order, refusals with their row."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from pyarrow import parquet

from data.helpers import check_divided, refused
from data.modules import table
from seqlab.batch import IGNORE
from seqlab_data import TableDataModule
from seqlab_data.arrays import read_table
from seqlab_data.batches import Batches

INPUTS: list[list[list[float]]] = [[[1.0, 2], [3, 4], [5, 6]], [[7, 8]]]
TARGETS: dict[str, list[Any]] = {
    "strings": ["b", "a"],
    "integers": [7, -1],
    "numbers": [0.5, 2.0],
    "labels": [[1, 0, 1], [0, 0, 1]],
    "frames": [[[1, 0], [0, 1], [1, 1]], [[0, 0]]],
}
READ: dict[str, list[Any]] = {**TARGETS, "integers": ["7", "-1"]}


def padded(rows: list[Any]) -> NDArray[Any]:
    """With 9 at pads."""
    if not isinstance(rows[0], list) or not isinstance(rows[0][0], list):
        return np.array(rows)
    return np.array([row + [[9] * len(row[0])] * (3 - len(row)) for row in rows])


def write(folder: Path, form: str, columns: dict[str, list[Any]]) -> str:
    if form == "parquet":
        parquet.write_table(pa.table(columns), folder / "x.parquet")
        return str(folder / "x.parquet")
    arrays: dict[str, Any] = {name: padded(rows) for name, rows in columns.items()} | {"lengths": np.array([3, 1])}
    if form == "npz":
        np.savez(folder / "x.npz", **arrays)
        return str(folder / "x.npz")
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return str(folder)


@pytest.mark.parametrize("form", ["parquet", "npz", "npy"])
@pytest.mark.parametrize("kind", TARGETS)
def test_every_format_gives_the_same_rows(tmp_path: Path, form: str, kind: str) -> None:
    path = write(tmp_path, form, {"inputs": INPUTS, "y": TARGETS[kind]})
    rows = read_table(path, features=["inputs"], target="y")
    assert [row.inputs.tolist() for row in rows] == INPUTS
    assert [row.target.tolist() if isinstance(row.target, np.ndarray) else row.target for row in rows] == READ[kind]
    assert [row.place for row in rows] == [f"{path}, row 0", f"{path}, row 1"]
    assert all(row.inputs.dtype == np.float32 for row in rows)


@pytest.mark.parametrize("form", ["parquet", "npz"])
def test_columns_stand_side_by_side(tmp_path: Path, form: str) -> None:
    left, right = [[[1], [3], [5]], [[7]]], [[[2, 0], [4, 0], [6, 0]], [[8, 0]]]
    flat = {"x": [[1, 3, 5], [7]]} if form == "parquet" else {"x": left}
    path = write(tmp_path, form, {**flat, "more": right, "y": [1, 2]})
    for names, order in ((["x", "more"], [0, 1, 2]), (["more", "x"], [1, 2, 0])):
        first, last = read_table(path, features=names, target="y")
        assert first.inputs.tolist() == [[row[i] for i in order] for row in ([1, 2, 0], [3, 4, 0], [5, 6, 0])]
        assert last.inputs.tolist() == [[[7, 8, 0][i] for i in order]]


@pytest.mark.parametrize("kind", TARGETS)
def test_a_batch_by_hand(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "npz", {"inputs": INPUTS, "targets": TARGETS[kind]})
    data = TableDataModule(path, val=path, test=path, max_len=3)
    data.setup("fit")
    [batch] = data.val_dataloader()
    assert batch.inputs.tolist() == [INPUTS[0], [*INPUTS[1], [0, 0], [0, 0]]]
    assert batch.pad_mask.tolist() == [[True, True, True], [True, False, False]]
    assert (data.num_features, data.seq_len) == (2, 3)
    nothing = Batches(data.rows("val"), rank=2, world=3)[0]
    if kind in ("strings", "integers"):
        assert data.labels == sorted(READ[kind]) and (data.num_classes, hasattr(data, "num_labels")) == (2, False)
        assert (batch.targets.dtype, batch.targets.tolist()) == (torch.int64, [1, 0])
        assert nothing.targets.tolist() == [IGNORE]
        return
    assert (data.labels, hasattr(data, "num_classes"), batch.targets.dtype) == ([], False, torch.float32)
    assert getattr(data, "num_labels", None) == {"labels": 3, "frames": 2}.get(kind)
    counted = [row[row.isfinite()].tolist() for row in batch.targets]
    assert counted == [np.ravel(row).tolist() for row in TARGETS[kind]]
    assert batch.targets.shape == {"numbers": (2,), "labels": (2, 3), "frames": (2, 3, 2)}[kind]
    assert kind != "frames" or batch.targets[1, 1:].isnan().all()
    assert nothing.targets.isnan().all() and nothing.targets.shape[1:] == batch.targets.shape[1:]


def test_training_sequences_are_cut_into_windows_and_others_are_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "npz", {"inputs": INPUTS, "targets": TARGETS["frames"]})
    data = TableDataModule(path, val=path, test=path, max_len=3, window=2)
    data.setup("fit")
    rows = data.rows("train")
    assert [some.tolist() for some in rows.inputs] == [INPUTS[0][:2], INPUTS[0][2:], INPUTS[1]]
    assert [some.tolist() for some in rows.targets] == [[[1, 0], [0, 1]], [[1, 1]], [[0, 0]]]
    assert rows.places == [
        f"{path}, row 0, frames 0 to 1",
        f"{path}, row 0, frames 2 to 2",
        f"{path}, row 1, frames 0 to 0",
    ]
    assert [some.tolist() for some in data.rows("val").inputs] == INPUTS
    assert data.identity() == TableDataModule(path, val=path, test=path, max_len=3).identity()


def test_windows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "npz", {"inputs": INPUTS, "targets": TARGETS["labels"]})
    with pytest.raises(ValueError, match=r"^data\.window needs labels for each frame, and data.target is 3 labels$"):
        TableDataModule(path, val=path, test=path, max_len=3, window=2).setup("fit")
    with pytest.raises(ValueError, match=r"^data\.window must be at least 1, got 0$"):
        TableDataModule(path, window=0)


def test_equal_sequences_are_in_one_split_and_a_split_with_a_path_takes_none(tmp_path: Path) -> None:
    write(tmp_path, "parquet", {"x": [[float(i % 300)] for i in range(600)], "y": [float(i) for i in range(600)]})
    path = str(tmp_path / "x.parquet")
    make = partial(TableDataModule, path, features="x", target="y", split=(0.6, 0.3, 0.1))
    check_divided({name: [float(some[0, 0]) for some in part.inputs] for name, part in make()._rows.items()})
    some = make(test=path).describe()["splits"]
    assert some["test"] == {"sequences": 600, "frames": 600}
    assert some["train"]["sequences"] + some["val"]["sequences"] == 600


GOOD: dict[str, list[Any]] = {"inputs": [[[1.0, 2], [3, 4]], [[5, 6]]], "targets": [1, 0]}
BAD = [
    ({"inputs": [[[1.0, 2]], [[5, float("nan")]]]}, r"x\.parquet, row 1 has nan as feature 1 of frame 0"),
    ({"inputs": [[[1.0, 2]], [[5, 1e300]]]}, r"row 1 has inf as feature 1 of frame 0"),
    ({"inputs": [[[1.0, 2]], [[5, None]]]}, r"x\.parquet, row 1 has a null in inputs at frame 0; leave the row out"),
    ({"inputs": [[1.0, 2, None, 4], [5, 6]]}, r"x\.parquet, row 0 has a null in inputs at frame 2"),
    ({"inputs": [[[1.0, 2]], None]}, r"row 1 has a null in inputs; leave the row out, or give a number"),
    ({"targets": [[[0, 1], [1, None]], [[0, 1]]]}, r"x\.parquet, row 0 has a null in the target at frame 1"),
    ({"targets": ["a\tb", "c"]}, r"x\.parquet, row 0 has the label 'a\\tb'; a label begins and ends with"),
    ({"targets": [1, 1]}, r"x\.parquet: the train split has only the label '1'; give examples of at least two labels"),
    ({"inputs": [["a"], ["b"]]}, r"row 0 has no sequence in inputs"),
    ({"inputs": [[[1.0, 2]], []]}, r"row 1 has 0 frames; a sequence has at least one"),
    ({"inputs": [[[1.0, 2], [3]], [[5, 6]]]}, r"row 0 has no sequence in inputs; .* or one list of numbers, a frame"),
    ({"inputs": [[[1.0, 2]], [[5]]]}, r"row 1 has 1 features a frame, but .*x\.parquet, row 0 has 2"),
    ({"more": [[1.0], [2]]}, r"row 0 has features of different lengths: inputs 2, more 1"),
    ({"targets": None}, r"x\.parquet cannot be read: it has no column targets; it has inputs"),
    ({"targets": [1, None]}, r"row 1 has a null in the target; leave the row out"),
    ({"targets": [0.5, float("inf")]}, r"row 1 has a target of inf"),
    ({"targets": [[0, 1], [0, 2]]}, r"row 1 has a target of shape \(2,\) and type int64"),
    ({"targets": [[], []]}, r"row 0 has a target of shape \(0,\)"),
    ({"targets": [[[0], [0, 1]], [[0], [1]]]}, r"row 0 has a target of shape \(2,\) and type object"),
    ({"targets": [[0, 1], [0]]}, r"row 1 has 1 labels as its target, but .*row 0 has 2 labels"),
    ({"targets": [[[0], [1]], [[0], [1]]]}, r"row 1 has 1 frames, but 2 targets; give one for each"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_rows_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in {**GOOD, **change}.items() if values is not None}
    path = write(tmp_path, "parquet", columns)
    with refused(message):
        TableDataModule(path, val=path, test=path, features=[n for n in columns if n != "targets"]).setup("fit")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": [1, 0, 1]}, r"x\.npz has arrays of different lengths"),
        ({"lengths": [1]}, r"x\.npz has arrays of different lengths"),
        ({"lengths": [2, 3]}, r"x\.npz, row 1 has 3 frames; a sequence has at least one, and no more than its arrays"),
        ({"lengths": [1.5, 1]}, r"x\.npz, row 0 has 1\.5 frames"),
        ({"targets": 1}, r"x\.npz has arrays of different lengths, .* 'targets': 1"),
        ({"lengths": [0, 1]}, r"x\.npz, row 0 has 0 frames"),
        ({"inputs": [1.0, 2.0]}, r"x\.npz, row 0 has no sequence in inputs"),
        ({"inputs": np.zeros((0, 2, 2)), "targets": np.zeros(0)}, r"x\.npz has no row; give a row for each sequence"),
        ({"inputs": None}, r"x\.npz has no array inputs; it has targets; give a \.parquet file, an \.npz file"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given = {"inputs": np.ones((2, 2, 2)), "targets": [1, 0], **change}
    np.savez(tmp_path / "x.npz", **{name: np.array(some) for name, some in given.items() if some is not None})  # type: ignore[arg-type]
    with refused(message):
        read_table(str(tmp_path / "x.npz"), features=["inputs"], target="targets")


def test_bad_files_are_refused(tmp_path: Path) -> None:
    for name in ("no.npz", "no.parquet"):
        with refused(rf"{name} is not a file; give a \.parquet file, an \.npz file, or a fol"):
            TableDataModule(str(tmp_path / name)).setup("fit")
        (tmp_path / name).write_text("something else", encoding="utf-8")
        with refused(rf"{name} cannot be read: "):
            TableDataModule(str(tmp_path / name)).setup("fit")
    path = write(tmp_path, "parquet", {"inputs": [[[1.0, 2]]], "targets": [5]})
    (val := tmp_path / "val.parquet").write_bytes(Path(path).read_bytes())
    with refused(r"val\.parquet, row 0 has the label '5', which the train split lacks; it has 0"):
        table(tmp_path, val=str(val), test=str(val)).setup("fit")
    with refused(r"x\.parquet, row \d+ has a sequence of 4 frames, but data\.max_len 3"):
        table(tmp_path, max_len=3).setup("fit")
