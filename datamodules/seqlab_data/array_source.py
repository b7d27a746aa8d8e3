"""Named arrays: an .npz file, or a folder of .npy files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_arrays(path: str | Path, wanted: Iterable[str], accepted: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file, or of a folder's NAME.npy files, by their names.

    Raises:
        ValueError: it cannot be read, or lacks an array that is wanted; says what is `accepted`.
    """
    path = Path(path).expanduser()
    try:
        if path.is_dir():
            arrays = {file.stem: np.load(file, mmap_mode="r") for file in sorted(path.glob("*.npy"))}
        elif zipfile.is_zipfile(path):
            arrays = dict(np.load(path, allow_pickle=False))
        else:
            raise ValueError("it is no .npz archive")
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}; give {accepted}") from error
    for name in wanted:
        if name not in arrays:
            raise ValueError(f"{path} has no array {name}, it has {', '.join(arrays) or 'none'}; give {accepted}")
    return arrays
