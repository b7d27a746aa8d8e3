"""ImageDataModule: patches by hand, a split that leaks nothing, the train split's scale, refusals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from data.helpers import check_divided, refused
from data.modules import images, some_images
from seqlab_data import ImageDataModule
from seqlab_data.arrays import read_images
from seqlab_data.images import patches


def test_patches_by_hand() -> None:
    """An image of 2 x 4 pixels with channels 0 and 1: pixel p has 2 p and 2 p + 1."""
    image = np.arange(16.0, dtype=np.float32).reshape(1, 2, 4, 2)
    assert patches(image, 2).tolist() == [[[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]]
    assert patches(image, 1).tolist() == [[[2 * p, 2 * p + 1] for p in range(8)]]


@pytest.mark.parametrize("patch_size", [1, 2])
def test_a_batch_is_the_scaled_patches_of_its_images(tmp_path: Path, patch_size: int) -> None:
    arrays = some_images()
    data = images(tmp_path, arrays, patch_size=patch_size)
    data.setup("fit")
    assert (data.num_features, data.seq_len, data.num_classes) == (2 * patch_size**2, 24 // patch_size**2, 3)
    assert data.labels == ["0", "10", "20"]
    train = arrays["images"][data._places["train"]].astype(float)
    mean, std = train.mean(axis=(0, 1, 2)), train.std(axis=(0, 1, 2))
    places = data._places["val"]
    read = list(data.val_dataloader())
    inputs, targets = torch.cat([batch.inputs for batch in read]), torch.cat([batch.targets for batch in read])
    assert targets.tolist() == [n % 3 for n in places]
    rows = torch.cat([batch.rows for batch in read if batch.rows is not None]).tolist()
    assert [data.place("val", row).rpartition(" ")[2] for row in rows] == [str(n) for n in places]
    assert all(batch.pad_mask.all() and batch.pad_mask.shape == batch.inputs.shape[:2] for batch in read)
    scaled = ((arrays["images"][places] - mean) / std).astype(np.float32)
    torch.testing.assert_close(inputs, torch.from_numpy(patches(scaled, patch_size)), rtol=0, atol=1e-6)


def test_a_channel_that_never_changes_is_only_centred(tmp_path: Path) -> None:
    arrays = some_images()
    arrays["images"][..., 1] = 255
    batch = next(iter(images(tmp_path, arrays).val_dataloader()))
    assert (batch.inputs[..., 1] == 0).all() and batch.inputs[..., 0].std() > 0.5


def test_equal_images_are_in_one_split_and_another_seed_divides_otherwise(tmp_path: Path) -> None:
    arrays = {name: np.concatenate([some] * 2) for name, some in some_images(300).items()}
    make = partial(images, tmp_path, arrays, split=(0.6, 0.3, 0.1))
    places, others = make()._places, make(split_seed=1)._places
    assert sorted(np.concatenate([*places.values()]).tolist()) == list(range(600))
    check_divided({name: [int(n) % 300 for n in some] for name, some in places.items()})
    assert places["test"].tolist() != others["test"].tolist()
    assert make(seed=7)._places["test"].tolist() == places["test"].tolist()


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    found = read_images(None)
    assert found.images.shape == (1797, 8, 8, 1)
    assert (found.images[..., 0].reshape(1797, 64) == load_digits().data).all()
    data = ImageDataModule(patch_size=2)
    # Stored values: were they to change, runs could no longer be compared.
    sizes = {name: split["images"] for name, split in data.describe()["splits"].items()}
    assert sizes == {"train": 1424, "val": 193, "test": 180}
    assert (data.num_features, data.seq_len, data.labels) == (4, 16, [str(n) for n in range(10)])


def changed(**arrays: Any) -> dict[str, NDArray[Any]]:
    return {name: value for name, value in {**some_images(), **arrays}.items() if value is not None}


BAD = [
    (changed(labels=None), r"x\.npz has no array labels; it has images; give an \.npz file with the arrays images"),
    (changed(images=np.zeros((60, 4))), r"x\.npz has images of shape \(60, 4\) and type float64"),
    (changed(images=np.zeros((0, 4, 4))), r"x\.npz has images of shape \(0, 4, 4\)"),
    (changed(images=np.full((60, 4, 4), "a")), r"x\.npz has images of shape \(60, 4, 4\) and type <U1"),
    (changed(labels=np.zeros(59, dtype=int)), r"x\.npz has labels of shape \(59,\) and type int64 for 60 images"),
    (changed(labels=np.zeros(60)), r"x\.npz has labels .* type float64 .*; give one integer or string for each"),
    (changed(labels=np.array([{}] * 60)), r"x\.npz cannot be read: Object arrays"),
    (changed(images=np.where(np.arange(60)[:, None, None] == 7, np.nan, np.zeros((60, 4, 4)))), r"image 7 has a pixel"),
    (
        changed(labels=np.arange(60)),
        r"x\.npz, image \d+ of the val split has the label '\d+', which the train split lacks",
    ),
]


@pytest.mark.parametrize(("arrays", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, NDArray[Any]], message: str) -> None:
    with refused(message):
        images(tmp_path, arrays).setup("fit")


def test_bad_files_and_options_are_refused(tmp_path: Path) -> None:
    with refused(r"no\.npz is not a file; give an \.npz file"):
        ImageDataModule(str(tmp_path / "no.npz")).setup("fit")
    (tmp_path / "text.npz").write_text("no zip", encoding="utf-8")
    with refused(r"text\.npz cannot be read: it is not an \.npz archive; give an"):
        ImageDataModule(str(tmp_path / "text.npz")).setup("fit")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with refused(r"one\.npy cannot be read: it is not an \.npz archive"):
        ImageDataModule(str(tmp_path / "one.npy")).setup("fit")
    with refused(r"data\.patch_size 4 does not divide images of 4 x 6"):
        images(tmp_path, patch_size=4).setup("fit")
    few = {name: array[:3] for name, array in some_images().items()}
    with refused(r"x\.npz: the (val|test) split has none of 3 images; give more"):
        images(tmp_path, few, split=(0.98, 0.01, 0.01)).setup("fit")
