"""Reader of golden files, which never allocates more than the size of the file. NumPy only."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_export.runner.manifest import BundleError

_SUFFIX = ".npy"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_golden(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz` file written by `golden.write_golden`, by name.

    Raises:
        BundleError: the file is damaged, compressed, or declares more data than it contains.
    """
    try:
        with zipfile.ZipFile(path) as file:
            entries = file.infolist()
            packed = any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries)
            if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise BundleError("it is compressed, or would unpack to more than it is long")
            return {entry.filename.removesuffix(_SUFFIX): _array(file.read(entry), entry.filename) for entry in entries}
    except (zipfile.BadZipFile, BundleError, NotImplementedError, OSError, EOFError) as error:
        raise BundleError(f"{path}: {error}") from error


def array_of(golden: Mapping[str, NDArray[Any]], name: str, *shape: int | None) -> NDArray[Any]:
    """The numeric array with this name, whose shape must begin with `shape`; None = any size but 0.

    Raises:
        BundleError: there is no such array.
    """
    if name not in golden:
        raise BundleError(f"the golden file does not have {name}")
    array = golden[name]
    if array.dtype.kind == "U":
        raise BundleError(f"{name} of the golden file is text, and should be numbers")
    fits = [size > 0 if wanted is None else size == wanted for size, wanted in zip(array.shape, shape, strict=False)]
    if not all(fits) or len(fits) < len(shape):
        dims = ", ".join("any" if wanted is None else str(wanted) for wanted in shape)
        raise BundleError(f"{name} of the golden file has shape {array.shape}, which should begin with ({dims})")
    return array


def _array(content: bytes, name: str) -> NDArray[Any]:
    """Parses an array of plain numbers in C order, or of one text; its length must match its header."""
    stream = io.BytesIO(content)
    try:
        if not name.endswith(_SUFFIX):
            raise ValueError("it is no array")
        shape, fortran, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
        known = dtype.str in ("|b1", "|u1", "<i4", "<i8", "<f2", "<f4", "<f8") or (dtype.kind == "U" and not shape)
        if fortran or not known or any(size < 0 for size in shape):
            raise ValueError(f"it is of type {dtype} and shape {shape}, which golden files do not have")
        if prod(shape) * dtype.itemsize != len(content) - stream.tell():
            raise ValueError(f"it has {len(content) - stream.tell()} bytes, not {shape} of {dtype}")
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        raise BundleError(f"{name}: {error}") from error
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape).copy()
