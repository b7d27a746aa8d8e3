"""One file of weights that several graphs share: a tensor that both have is stored once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Self

from onnxscript import ir

FILE_NAME = "weights.bin"
SMALLEST_BYTES = 1024
"""Smaller tensors stay in their graph."""

_ALIGNMENT = 64


class WeightFile:
    """Writes `weights.bin` into a folder while it is open (a context manager)."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._offsets: dict[tuple[int, bytes], int] = {}

    def __enter__(self) -> Self:
        self._file = self._path.open("xb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, model: ir.Model) -> None:
        """Moves the weights of a graph into the file and leaves references to them."""
        for value in model.graph.initializers.values():
            tensor = value.const_value
            assert tensor is not None, value.name
            if tensor.nbytes < SMALLEST_BYTES:
                continue
            data = tensor.tobytes()
            value.const_value = ir.ExternalTensor(
                FILE_NAME,
                self._place(data),
                len(data),
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
                base_dir=self._path.parent,
            )

    def _place(self, data: bytes) -> int:
        """The offset at which `data` stands in the file, where it is written if it is new."""
        key = (len(data), hashlib.sha256(data).digest())
        if key not in self._offsets:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._offsets[key] = self._file.tell()
            self._file.write(data)
        return self._offsets[key]
