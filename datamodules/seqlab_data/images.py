"""Labelled images as sequences of patches: a LightningDataModule.

B batch, N images, H height, W width, C channels, P patch size, T patches of an image, F = P P C features.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import LabelledBatch
from seqlab_data.annotated import check_classes
from seqlab_data.arrays import Images, read_images
from seqlab_data.base import SequenceDataModule, check_at_least
from seqlab_data.splits import SPLITS, check_split, split_of

DIGITS = "scikit-learn's digits"


class ImageRows:
    """Images and their classes.

    Args:
        images: (N, H, W, C).
        classes: (N,) int64.
        mean, std: (C,); images are read as (image - mean) / std.
    """

    def __init__(
        self,
        images: NDArray[Any],
        classes: NDArray[np.int64],
        patch_size: int,
        mean: NDArray[np.float64],
        std: NDArray[np.float64],
    ) -> None:
        self.images = images
        self.classes = torch.from_numpy(classes)
        self.patch_size = patch_size
        self.mean = mean
        self.std = std

    def __len__(self) -> int:
        return len(self.images)

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The images with these indices, (B,): inputs (B, T, F), targets (B,)."""
        scaled = ((self.images[indices] - self.mean) / self.std).astype(np.float32)  # (B, H, W, C)
        inputs = torch.from_numpy(patches(scaled, self.patch_size))
        rows = torch.tensor(indices)
        return LabelledBatch(inputs, torch.ones(inputs.shape[:2], dtype=torch.bool), self.classes[rows], rows)


class ImageDataModule(SequenceDataModule[LabelledBatch]):
    """Images with one class label each, read as sequences of features. docs/data.md has the guarantees.

    Args:
        path: .npz file with the arrays images, (N, H, W) or (N, H, W, C), and labels, (N,); None = scikit-learn's
            digits.
        patch_size: patch side P in pixels; an image is read as its P x P patches, row by row. 1 = pixel by pixel.
        split: fractions of train, val and test, assigned by a hash of `split_seed` and the image.
        batch_size: images per batch on each rank.
        seed: random seed for the order of the training batches.
        num_workers: number of data-loading processes; 0 = load in the training process.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, the file is invalid or patch_size
            does not divide the image size.
    """

    in_evaluation = ("labels", "scale", "patch_size", "images")
    between_epochs = ("batch_size",)

    def __init__(
        self,
        path: str | None = None,
        *,
        patch_size: int = 1,
        split: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 0,
        batch_size: int = 64,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers, batch_size=batch_size)
        check_at_least(1, patch_size=patch_size)
        check_split(split)
        self.path = path
        self.patch_size = patch_size
        self.split = tuple(split)
        self.split_seed = split_seed

    @property
    def num_features(self) -> int:
        """F, the number of features of a patch."""
        channels: int = self._all.images.shape[-1]
        return self.patch_size**2 * channels

    @property
    def seq_len(self) -> int:
        """T, the number of patches of an image."""
        _, height, width, _ = self._all.images.shape
        return int(height // self.patch_size * (width // self.patch_size))

    @cached_property
    def labels(self) -> list[str]:
        """Class names: the train split's labels, sorted."""
        return [str(label) for label in self._known]

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def setup(self, stage: str) -> None:
        """Reads the images.

        Raises:
            ValueError: the file is invalid.
        """
        super().setup(stage)
        self._rows  # noqa: B018 (reads them)

    def describe(self) -> dict[str, Any]:
        """Description of the data for a run's record."""
        return {
            "name": "images",
            "source": self.path or DIGITS,
            "digest": self._digest,
            "splits": {name: {"images": len(rows)} for name, rows in self._rows.items()},
            "labels": self.labels,
            "images": self._size,
            "patch_size": self.patch_size,
        }

    def place(self, split: str, row: int) -> str:
        return self._place(int(self._places[split][row]))

    def _place(self, image: int) -> str:
        return f"{self.path or DIGITS}, image {image}"

    @cached_property
    def _all(self) -> Images:
        found = read_images(self.path)
        _, height, width, _ = found.images.shape
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(
                f"data.patch_size {self.patch_size} does not divide images of {height} x {width}, as "
                f"{self.path or DIGITS} has; give a number that divides both"
            )
        return found

    @cached_property
    def _places(self) -> dict[str, NDArray[np.int64]]:
        """Indices of the images in each split; equal images are in the same split."""
        shares = dict(zip(SPLITS, self.split, strict=True))
        salt = f"{self.split_seed},".encode()
        of = np.array([split_of(salt + image.tobytes(), shares) for image in self._all.images])
        places = {name: np.flatnonzero(of == name) for name in shares}
        for name, some in places.items():
            if not len(some):
                raise ValueError(
                    f"{self.path or DIGITS}: the {name} split has none of {len(of)} images; give more images, "
                    "or a larger share in data.split"
                )
        return places

    @cached_property
    def _known(self) -> NDArray[Any]:
        """The train split's labels, sorted."""
        return np.unique(self._all.labels[self._places["train"]])

    @cached_property
    def _scale(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each channel in the train split; the latter is 1 for a constant channel."""
        images = self._all.images[self._places["train"]]
        mean = images.mean(axis=(0, 1, 2), dtype=np.float64)
        # In chunks: all images as float64 may not fit in memory.
        squares = sum(((images[i : i + 1000] - mean) ** 2).sum(axis=(0, 1, 2)) for i in range(0, len(images), 1000))
        std = np.sqrt(squares / images[..., 0].size)
        return mean, np.where(std > 0, std, 1.0)

    @cached_property
    def _rows(self) -> dict[str, ImageRows]:
        check_classes(self.labels, self.path or DIGITS)
        labels = self._all.labels
        for name, places in self._places.items():
            for image in places[~np.isin(labels[places], self._known)]:
                raise ValueError(
                    f"{self._place(image)} of the {name} split has the label {str(labels[image])!r}, which the train "
                    f"split lacks; it has {', '.join(self.labels)}"
                )
        return {
            name: ImageRows(
                self._all.images[places], np.searchsorted(self._known, labels[places]), self.patch_size, *self._scale
            )
            for name, places in self._places.items()
        }

    @cached_property
    def _digest(self) -> str:
        return self._all.digest()

    @property
    def _size(self) -> str:
        return " x ".join(map(str, self._all.images.shape[1:]))

    def rows(self, split: str) -> ImageRows:
        return self._rows[split]

    @property
    def reading(self) -> dict[str, Any]:
        """Preprocessing that turns an image into a model's input: the image size, the patch size, the mean and standard
        deviation of each channel, and the largest pixel value."""
        _, height, width, _ = self._all.images.shape
        scale = np.stack(self._scale, axis=1).tolist()
        largest = float(self._all.images.max())
        return {"height": height, "width": width, "patch": self.patch_size, "scale": scale, "largest": largest}

    def identity(self) -> dict[str, int | str]:
        return {
            "data": self._digest,
            "split": f"{', '.join(map(str, self.split))} by {self.split_seed}",
            "labels": ", ".join(self.labels),
            "images": self._size,
            "patch_size": self.patch_size,
            "scale": ", ".join(map(str, np.stack(self._scale, axis=1).tolist())),
            "batch_size": self.batch_size,
            "seed": self.seed,
        }


def patches(images: NDArray[np.float32], patch_size: int) -> NDArray[np.float32]:
    """(N, H, W, C) to (N, T, F): patches in row-major order, with the pixels of each in row-major order and the
    channels of a pixel adjacent (Dosovitskiy et al. 2021, section 3.1)."""
    count, height, width, channels = images.shape
    size = patch_size
    grid = images.reshape(count, height // size, size, width // size, size, channels)  # (N, H / P, P, W / P, P, C)
    by_patch = grid.transpose(0, 1, 3, 2, 4, 5)  # (N, H / P, W / P, P, P, C)
    return np.ascontiguousarray(by_patch.reshape(count, -1, size * size * channels))  # (N, T, F)
