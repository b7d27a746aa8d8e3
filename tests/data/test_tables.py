"""TableDataModule: every format and target by hand, a split that leaks nothing, the order, refusals with their row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from pyarrow import parquet

from data.order import check_order
from data.test_resume import SaveAfter, fit
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


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., TableDataModule]:
    """Builds a data module of sequences that are all different, with these targets."""

    def make(targets: list[Any] | NDArray[Any] | None = None, lengths: Any = None, **options: Any) -> TableDataModule:
        lengths = [1 + i % 5 for i in range(60)] if lengths is None else lengths
        targets = [i % 3 for i in range(len(lengths))] if targets is None else targets
        inputs = [[[float(i), t] for t in range(length)] for i, length in enumerate(lengths)]
        parquet.write_table(pa.table({"inputs": inputs, "targets": targets}), tmp_path / "x.parquet")
        defaults = {"split": (0.6, 0.2, 0.2), "max_len": 8, "max_tokens": 16}
        return TableDataModule(str(tmp_path / "x.parquet"), **{**defaults, **options})

    return make


@pytest.mark.parametrize("kind", TARGETS)
def test_a_batch_by_hand(make: Callable[..., TableDataModule], tmp_path: Path, kind: str) -> None:
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


def test_equal_sequences_are_in_one_split_and_a_split_with_a_path_takes_none(tmp_path: Path) -> None:
    inputs = [[float(i % 150)] for i in range(300)]
    path = str(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"x": inputs, "y": [float(i) for i in range(300)]}), path)
    options: dict[str, Any] = {"features": "x", "target": "y", "split": (0.5, 0.3, 0.2)}
    rows = TableDataModule(path, **options)._rows
    of = {name: {float(some[0, 0]) for some in part.inputs} for name, part in rows.items()}
    assert sum(map(len, rows.values())) == 300 and sum(map(len, of.values())) == 150
    assert all(abs(len(of[name]) - 150 * share) < 30 for name, share in {"train": 0.5, "val": 0.3, "test": 0.2}.items())
    some = TableDataModule(path, test=path, **options).describe()["splits"]
    assert some["test"] == {"sequences": 300, "frames": 300}
    assert some["train"]["sequences"] + some["val"]["sequences"] == 300


@pytest.mark.parametrize(("on_long", "lengths"), [("drop", [2]), ("cut", [3, 2])])
def test_long_sequences_are_dropped_or_cut_with_their_frames(tmp_path: Path, on_long: str, lengths: list[int]) -> None:
    inputs = [[1.0, 2, 3, 4], [5, 6]]
    targets = [[[1], [0], [1], [1]], [[0], [1]]]
    path = str(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"inputs": inputs, "targets": targets}), path)
    data = TableDataModule(path, val=path, test=path, max_len=3, on_long=on_long)
    reason = f"over 3 frames, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == {f"{split}: {reason}": 1 for split in ("train", "val", "test")}
    assert data.place("train", len(lengths) - 1).endswith("x.parquet, row 1")
    rows = data._rows["train"]
    assert [len(row) for row in rows.inputs] == [len(row) for row in rows.targets] == lengths
    assert on_long == "drop" or rows.targets[0].tolist() == [[1], [0], [1]]
    with pytest.raises(ValueError, match=r"x\.parquet, row 0 has a sequence of 4 frames, but data\.max_len 3"):
        TableDataModule(path, val=path, test=path, max_len=3).setup("fit")


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., TableDataModule]) -> None:
    data = make()
    expected = list(data.train_dataloader())
    assert len(expected) > 5 and all(batch.pad_mask.numel() <= 16 for batch in expected)
    check_order(make, len(data._rows["val"]))


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader`")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
def test_a_fit_that_stops_goes_on_with_the_same_batches(make: Callable[..., TableDataModule], tmp_path: Path) -> None:
    path = tmp_path / "some.ckpt"
    whole = fit("", None, SaveAfter(path, "on_train_batch_end", 4), data=make()).seen
    assert len(whole) > 12 and whole[: len(whole) // 2] != whole[len(whole) // 2 :]
    assert fit("", path, data=make()).seen == whole[4:]


def test_what_a_checkpoint_is_held_to(make: Callable[..., TableDataModule]) -> None:
    state = make().state_dict()
    make(max_tokens=30).load_state_dict(state)
    testing = SimpleNamespace(state=SimpleNamespace(fn="test"), distributed_sampler_kwargs=None)
    for targets, message in (([0.5] * 60, "target a class"), ([i % 2 for i in range(60)], "labels 0, 1, 2")):
        other = make(targets)
        other.trainer = testing  # type: ignore[assignment]
        with pytest.raises(ValueError, match=f"trained with {message}"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="trained with data"):
        make([(i + 1) % 3 for i in range(60)]).load_state_dict(state)


GOOD: dict[str, list[Any]] = {"inputs": [[[1.0, 2], [3, 4]], [[5, 6]]], "targets": [1, 0]}
BAD = [
    ({"inputs": [[[1.0, 2]], [[5, float("nan")]]]}, r"x\.parquet, row 1 has nan as feature 1 of frame 0"),
    ({"inputs": [[[1.0, 2]], [[5, 1e300]]]}, r"row 1 has inf as feature 1 of frame 0"),
    ({"inputs": [[[1.0, 2]], [[5, None]]]}, r"x\.parquet, row 1 has a null in inputs at frame 0; leave the row out"),
    ({"inputs": [[1.0, 2, None, 4], [5, 6]]}, r"x\.parquet, row 0 has a null in inputs at frame 2"),
    ({"inputs": [[[1.0, 2]], None]}, r"row 1 has a null in inputs; leave the row out, or give a number"),
    ({"targets": [[[0, 1], [1, None]], [[0, 1]]]}, r"x\.parquet, row 0 has a null in the target at frame 1"),
    ({"targets": ["a\tb", "c"]}, r"x\.parquet, row 0 has the label 'a\\tb'; a label begins and ends with"),
    ({"targets": [1, 1]}, r"x\.parquet: the train split has no label but '1'; give examples of two at least"),
    ({"inputs": [["a"], ["b"]]}, r"row 0 has no sequence in inputs"),
    ({"inputs": [[[1.0, 2]], []]}, r"row 1 has 0 frames; a sequence has at least one"),
    ({"inputs": [[[1.0, 2], [3]], [[5, 6]]]}, r"row 0 has no sequence in inputs; .* as many numbers in each"),
    ({"inputs": [[[1.0, 2]], [[5]]]}, r"row 1 has 1 features a frame, but .*x\.parquet, row 0 has 2"),
    ({"more": [[1.0], [2]]}, r"row 0 has features of different lengths: inputs 2, more 1"),
    ({"targets": None}, r"x\.parquet cannot be read: it has no column targets, it has inputs"),
    ({"targets": [1, None]}, r"row 1 has a null in the target; leave the row out"),
    ({"targets": [0.5, float("inf")]}, r"row 1 has a target of inf"),
    ({"targets": [[0, 1], [0, 2]]}, r"row 1 has a target of shape \(2,\) and type int64"),
    ({"targets": [[], []]}, r"row 0 has a target of shape \(0,\)"),
    ({"targets": [[[0], [0, 1]], [[0], [1]]]}, r"row 0 has a target of shape \(2,\) and type object"),
    ({"targets": [[0, 1], [0]]}, r"row 1 has 1 labels as its target, but .*row 0 has 2 labels"),
    ({"targets": [[[0], [1]], [[0], [1]]]}, r"row 1 has 1 frames, but a target for 2; give one for each"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_rows_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    columns = {name: values for name, values in {**GOOD, **change}.items() if values is not None}
    path = str(tmp_path / "x.parquet")
    parquet.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match=message):
        TableDataModule(path, val=path, test=path, features=[n for n in columns if n != "targets"]).setup("fit")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": [1, 0, 1]}, r"x\.npz must have as many rows in each array"),
        ({"lengths": [1]}, r"x\.npz must have as many rows in each array"),
        ({"lengths": [2, 3]}, r"x\.npz, row 1 has 3 frames; a sequence has at least one, and no more than its arrays"),
        ({"lengths": [1.5, 1]}, r"x\.npz, row 0 has 1\.5 frames"),
        ({"targets": 1}, r"x\.npz must have as many rows in each array; .* 'targets': 1"),
        ({"lengths": [0, 1]}, r"x\.npz, row 0 has 0 frames"),
        ({"inputs": [1.0, 2.0]}, r"x\.npz, row 0 has no sequence in inputs"),
        ({"inputs": np.zeros((0, 2, 2)), "targets": np.zeros(0)}, r"x\.npz has no row; give a row for each sequence"),
        ({"inputs": None}, r"x\.npz has no array inputs, it has targets; give a \.parquet file, an \.npz file"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given = {"inputs": np.ones((2, 2, 2)), "targets": [1, 0], **change}
    arrays: dict[str, Any] = {name: np.array(some) for name, some in given.items() if some is not None}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(str(tmp_path / "x.npz"), features=["inputs"], target="targets")


def test_bad_files_and_options_are_refused(make: Callable[..., TableDataModule], tmp_path: Path) -> None:
    for name in ("no.npz", "no.parquet"):
        with pytest.raises(ValueError, match=rf"{name} is not a file; give a \.parquet file, an \.npz file, or a fol"):
            TableDataModule(str(tmp_path / name)).setup("fit")
        (tmp_path / name).write_text("something else", encoding="utf-8")
        with pytest.raises(ValueError, match=rf"{name} cannot be read: "):
            TableDataModule(str(tmp_path / name)).setup("fit")
    val = str(tmp_path / "val.parquet")
    parquet.write_table(pa.table({"inputs": [[[1.0, 2]]], "targets": [5]}), val)
    with pytest.raises(
        ValueError, match=r"val\.parquet, row 0 has the label '5', which the train split lacks; it has 0"
    ):
        make(val=val, test=val).setup("fit")
    with pytest.raises(ValueError, match=r"data\.split must be three positive shares"):
        make(split=(0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match=r"data\.max_len must be at least 2, got 1"):
        make(max_len=1)
