"""Where labelled images come from: arrays in an .npz file, or scikit-learn's digits.

N images, H height, W width, C channels.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.array_source import read_arrays
from seqlab_data.line_source import open_file

ACCEPTED = "an .npz file with the arrays images, (N, H, W) or (N, H, W, C), and labels, (N,)"


class Images(NamedTuple):
    """Images (N, H, W, C) of numbers, and labels (N,): integers or strings."""

    images: NDArray[Any]
    labels: NDArray[Any]

    def digest(self) -> str:
        """sha256 of what the arrays hold."""
        found = sha256()
        for array in self:
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


def read_images(path: str | None) -> Images:
    """The images of an .npz file, or scikit-learn's digits: 1,797 of 8 x 8, in 10 classes.

    Raises:
        ValueError: there is no such file, it lacks an array, or an array is not what it must be.
    """
    if path is None:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]

        digits = load_digits()
        return Images(digits.images[..., None], digits.target)
    name = open_file(path, ACCEPTED).name
    arrays = read_arrays(name, ("images", "labels"), ACCEPTED)
    images, labels = arrays["images"], arrays["labels"]
    if images.ndim not in (3, 4) or not images.size or images.dtype.kind not in "biuf":
        raise ValueError(f"{name} has images of shape {images.shape} and type {images.dtype}; give {ACCEPTED}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "biuU":
        raise ValueError(
            f"{name} has labels of shape {labels.shape} and type {labels.dtype} for {len(images)} images; give one "
            "integer or string for each"
        )
    if not (finite := np.isfinite(images).reshape(len(images), -1).all(axis=1)).all():
        raise ValueError(f"{name}: image {int(finite.argmin())} has a pixel that is not a finite number")
    return Images(images if images.ndim == 4 else images[..., None], labels)
