"""Readers of numbers: labelled images in an .npz file, or scikit-learn's digits; sequences in arrays, or in a Parquet
file with a row for each.

N images or sequences, H height, W width; T frames of a sequence, C channels or labels, F features.
"""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.documents import find_file
from seqlab_data.rows import check_label, check_names

IMAGES = "an .npz file with the arrays images, (N, H, W) or (N, H, W, C), and labels, (N,)"
TABLES = "a .parquet file, an .npz file, or a folder of .npy files"
LENGTHS = "lengths"
WholeNumbers = Literal["classes", "numbers"]


class Images(NamedTuple):
    """Images (N, H, W, C) of numbers, and labels (N,): integers or strings."""

    images: NDArray[Any]
    labels: NDArray[Any]

    def digest(self) -> str:
        """sha256 of the arrays' dtypes, shapes and values."""
        found = sha256()
        for array in self:
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


def read_images(path: str | None) -> Images:
    """The images of an .npz file, or scikit-learn's digits: 1,797 of 8 x 8, in 10 classes.

    Raises:
        ValueError: the file does not exist, lacks an array, or has an array of the wrong shape, type or content.
    """
    if path is None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        return Images(digits.images[..., None], digits.target)
    name = str(find_file(path, IMAGES))
    arrays = read_arrays(name, ("images", "labels"), IMAGES)
    images, labels = arrays["images"], arrays["labels"]
    if images.ndim not in (3, 4) or not images.size or images.dtype.kind not in "biuf":
        raise ValueError(f"{name} has images of shape {images.shape} and type {images.dtype}; give {IMAGES}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "biuU":
        raise ValueError(
            f"{name} has labels of shape {labels.shape} and type {labels.dtype} for {len(images)} images; give one "
            "integer or string for each"
        )
    for image, label in enumerate(labels.tolist()):
        check_label(str(label), f"{name}, image {image}")
    with np.errstate(over="ignore"):
        pixels = images.astype(np.float32) if images.dtype.kind == "f" else images
        finite = np.isfinite(pixels).reshape(len(images), -1).all(axis=1)
    if not finite.all():
        raise ValueError(f"{name}, image {int(finite.argmin())} has a pixel that is not a finite number; give numbers")
    return Images(images if images.ndim == 4 else images[..., None], labels)


class Record(NamedTuple):
    """A sequence, (T, F) float32; its target: a class, a number, or 0 or 1 for each label, (C,), or for each frame and
    label, (T, C) float32; and the file and row of both."""

    inputs: NDArray[np.float32]
    target: str | float | NDArray[np.float32]
    place: str

    @property
    def content(self) -> bytes:
        return self.inputs.tobytes()

    @property
    def of_frames(self) -> bool:
        """True if the target has labels for each frame."""
        return isinstance(self.target, np.ndarray) and self.target.ndim == 2

    def windows(self, frames: int) -> Iterator[Record]:
        """Windows of at most this many frames, one after the other, of a record with labels for each frame."""
        assert isinstance(self.target, np.ndarray)
        for begin in range(0, len(self.inputs), frames):
            end = min(begin + frames, len(self.inputs))
            yield Record(self.inputs[begin:end], self.target[begin:end], f"{self.place}, frames {begin} to {end - 1}")

    @property
    def kind(self) -> str:
        """Kind of the target, which all rows must share."""
        if isinstance(self.target, np.ndarray):
            return f"{self.target.shape[-1]} labels{' for each frame' if self.of_frames else ''}"
        return "a class" if isinstance(self.target, str) else "a number"


def read_table(
    path: str, *, features: Sequence[str], target: str, whole_numbers: WholeNumbers | None = None
) -> list[Record]:
    """The rows of a path, in order, counted from 0.

    Args:
        path: a `.parquet` file, an `.npz` file, or a folder of NAME.npy files. Arrays are (N, T) or (N, T, F), targets
            (N,), (N, C) or (N, T, C). An optional array `lengths`, (N,), holds the number of frames of each sequence.
            A Parquet row holds a list of T numbers, or of T lists of F numbers.
        features: arrays or columns to read; they are concatenated along the feature axis.
        target: array or column of the targets.
        whole_numbers: interpretation of integer targets; None = classes.

    Raises:
        ValueError: the path is missing, cannot be read, has no rows or lacks a column, or a row is invalid.
    """
    names = (*features, target)
    if Path(path).suffix.lower() == ".parquet":
        columns = _parquet_columns(str(find_file(path, TABLES)), names)
    else:
        if not Path(path).expanduser().is_dir():
            find_file(path, TABLES)
        columns = {name: np.atleast_1d(array) for name, array in read_arrays(path, names, TABLES).items()}
    sizes = {name: len(column) for name, column in columns.items() if name in (*names, LENGTHS)}
    if not any(sizes.values()):
        raise ValueError(f"{path} has no row; give a row for each sequence")
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{path} has arrays of different lengths, {sizes}; give each the same number of rows")
    return [
        _row(
            f"{path}, row {row}",
            {name: np.asarray(columns[name][row]) for name in features},
            np.asarray(columns[target][row]),
            columns[LENGTHS][row] if LENGTHS in columns else None,
            whole_numbers == "numbers",
        )
        for row in range(sizes[target])
    ]


def check_alike(rows: Sequence[Record]) -> None:
    """Rejects rows that differ from the first in the number of features or the kind of target.

    Raises:
        ValueError: a row differs.
    """
    first = rows[0]
    for row in rows:
        for what, found, wanted in (
            ("features a frame", row.inputs.shape[1], first.inputs.shape[1]),
            ("as its target", row.kind, first.kind),
        ):
            if found != wanted:
                raise ValueError(
                    f"{row.place} has {found} {what}, but {first.place} has {wanted}; give all rows the same"
                )


def read_arrays(path: str | Path, wanted: Iterable[str], accepted: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file, or of a folder's NAME.npy files, by their names.

    Raises:
        ValueError: it cannot be read, or lacks a wanted array; the message names the `accepted` formats.
    """
    path = Path(path).expanduser()
    with _readable(path, accepted):
        if path.is_dir():
            arrays = {file.stem: np.load(file, mmap_mode="r") for file in sorted(path.glob("*.npy"))}
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            check_names(names, [*dict.fromkeys(names)], "it")
            arrays = dict(np.load(path, allow_pickle=False))
        else:
            raise ValueError("it is not an .npz archive")
    for name in wanted:
        if name not in arrays:
            raise ValueError(f"{path} has no array {name}; it has {', '.join(arrays) or 'none'}; give {accepted}")
    return arrays


@contextmanager
def _readable(path: str | Path, accepted: str) -> Iterator[None]:
    """Rejects a file that cannot be read, with a message that names the `accepted` formats."""
    try:
        yield
    except Exception as error:  # NumPy, zipfile and Arrow each raise their own errors for damaged files
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}; give {accepted}") from error


def _parquet_columns(name: str, wanted: Sequence[str]) -> dict[str, Any]:
    from pyarrow import parquet

    with _readable(name, TABLES):
        check_names(parquet.read_schema(name).names, wanted, "it")
        table = parquet.read_table(name, columns=[*wanted], page_checksum_verification=True)
        found = {column: [value.as_py() for value in table[column]] for column in wanted}
        for column, values in found.items():
            for value in values:
                if isinstance(value, str) and value.endswith("\0"):  # NumPy strips trailing NULs
                    raise ValueError(
                        f"{column} has the value {value!r}, which ends with a NUL character; remove the NUL"
                    )
        return {column: [_array(value) for value in values] for column, values in found.items()}


def _array(value: Any) -> NDArray[Any]:
    """A row's value in a column as an array; ragged lists become an object array."""
    try:
        return np.array(value)
    except ValueError:
        found = np.empty(len(value), dtype=object)
        found[:] = value
        return found


def _row(place: str, parts: dict[str, NDArray[Any]], target: NDArray[Any], length: Any, numbers: bool) -> Record:
    columns = []
    for name, part in parts.items():
        _check_nulls(place, name, part)
        part = part[:, None] if part.ndim == 1 else part  # (T,) to (T, 1)
        if part.ndim != 2 or part.dtype.kind not in "biuf":
            raise ValueError(
                f"{place} has no sequence in {name}; a sequence has one number, or one list of numbers, a frame"
            )
        columns.append(part)
    if len({len(part) for part in columns}) != 1:
        lengths = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        raise ValueError(f"{place} has features of different lengths: {lengths}; give each the same number")
    longest = len(columns[0])
    num_frames = longest if length is None else length
    if not (isinstance(num_frames, int | np.integer) and 0 < num_frames <= longest):
        raise ValueError(f"{place} has {num_frames} frames; a sequence has at least one, and no more than its arrays")
    with np.errstate(over="ignore"):
        inputs = np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")[:num_frames]  # (T, F)
    if not np.isfinite(inputs).all():
        frame, feature = np.argwhere(~np.isfinite(inputs))[0]
        raise ValueError(
            f"{place} has {inputs[frame, feature]} as feature {feature} of frame {frame}; give finite numbers"
        )
    _check_nulls(place, "the target", target)
    by_frame = target.ndim == 2
    if by_frame and len(target) != longest:
        raise ValueError(f"{place} has {longest} frames, but {len(target)} targets; give one for each frame")
    return Record(inputs, _target(place, target[:num_frames] if by_frame else target, numbers), place)


def _check_nulls(place: str, name: str, part: NDArray[Any]) -> None:
    """Rejects a list that contains nulls."""
    if part.dtype.kind != "O":
        return
    for frame, found in enumerate(part.tolist() if part.ndim else [part.item()]):
        if found is None or (isinstance(found, list) and None in found):
            where = f" at frame {frame}" if part.ndim else ""
            raise ValueError(f"{place} has a null in {name}{where}; leave the row out, or give a number")


def _target(place: str, target: NDArray[Any], numbers: bool) -> str | float | NDArray[np.float32]:
    kind = target.dtype.kind if target.ndim == 0 else ""
    if kind and kind in ("fbiu" if numbers else "f") and np.isfinite(target):
        return float(target)
    if kind and kind in "biuU" and not numbers:
        return check_label(str(target), place)
    if target.ndim in (1, 2) and target.size and target.dtype.kind in "biuf" and np.isin(target, (0, 1)).all():
        return target.astype(np.float32)
    found = repr(target.item()) if target.ndim == 0 else f"shape {target.shape} and type {target.dtype}"
    raise ValueError(
        f"{place} has a target of {found}; give an integer or a string (a class), a finite decimal number, or 0 or 1 "
        "for each label, or for each label of each frame"
    )
