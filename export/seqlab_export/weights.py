"""One file of weights that several graphs share: a tensor that both have is stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from onnxscript import ir
from torch import nn

from seqlab_export.precision import Precision

FILE_NAME = "weights.bin"
SMALLEST_BYTES = 1024
"""Smaller tensors stay in their graph, but for those of `QUANTIZED`, whose names end so."""
QUANTIZED = ("_quantized", "_scale", "_zero_point", "_Q4", "_scales")

_ALIGNMENT = 64


class WeightFile:
    """Writes `weights.bin` into a folder while it is open (a context manager).

    Attributes:
        stored: where the bytes of each of its tensors stand, offset and length, by their sha256.
        kinds: the types of all tensors of the graphs.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self.stored: dict[bytes, tuple[int, int]] = {}
        self.kinds: set[ir.DataType] = set()

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
            self.kinds.add(tensor.dtype)
            quantized = value.name is not None and value.name.endswith(QUANTIZED)
            if tensor.nbytes < (1 if quantized else SMALLEST_BYTES):
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
        key = hashlib.sha256(data).digest()
        if key not in self.stored:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self.stored[key] = (self._file.tell(), len(data))
            self._file.write(data)
        return self.stored[key][0]


def describe(stored: Mapping[bytes, tuple[int, int]]) -> dict[str, NDArray[np.generic]]:
    """What the golden file holds of them: `weights/places` (N, 2), offset and length, and `weights/sha256` (N, 32)."""
    if not stored:
        return {}
    digests = np.frombuffer(b"".join(stored), dtype=np.uint8).reshape(-1, 32)
    return {"weights/places": np.array([*stored.values()], dtype=np.int64), "weights/sha256": digests}


def precision_of(kinds: Collection[ir.DataType], asked: Precision) -> Precision:
    """The precision that weights of these types are in; as asked where they are too small to be stored in it."""
    kind = ir.DataType
    marks: dict[Precision, ir.DataType] = {
        "int4": kind.UINT8,
        "int8": kind.INT8,
        "bf16": kind.BFLOAT16,
        "fp16": kind.FLOAT16,
    }
    found = [precision for precision, mark in marks.items() if mark in kinds]
    return found[0] if found else "fp32" if asked == "fp16" else asked


def check_tables(model: Any, precision: Precision, stored: Mapping[bytes, tuple[int, int]]) -> None:
    """That every row of the tables of tokens and places is stored as the model has it, bit for bit: no text reads all.

    Args:
        model: in the dtype of the precision.

    Raises:
        ValueError: one is not.
    """
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding):
            continue
        table = module.weight.detach()
        forms = [table, table.T] + ([table.bfloat16()] if precision == "bf16" else [])
        data = [form.contiguous().view(torch.uint8).numpy().tobytes() for form in forms]
        if len(data[0]) >= SMALLEST_BYTES and not any(hashlib.sha256(some).digest() in stored for some in data):
            raise ValueError(f"the bundle was not written: its weights do not hold {name}.weight as the model has it")
