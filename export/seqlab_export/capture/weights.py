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

from seqlab_export.capture.precision import Precision

FILE_NAME = "weights.bin"
SMALLEST_BYTES = 1024
"""Smallest tensor in the file, in bytes. Smaller ones stay in their graph, except those whose names end as in
`QUANTIZED`."""
QUANTIZED = ("_quantized", "_scale", "_zero_point", "_Q4", "_scales")

FORM_PREFIX = "model."
"""Prefix of the names of a form's weights, before their names in its model."""

_ALIGNMENT = 64


class WeightFile:
    """Writes `weights.bin` into a folder while it is open (a context manager).

    Attributes:
        stored: where the bytes of each of its tensors stand, offset and length, by their sha256.
        named: the name and sha256 of every tensor of the graphs, in the file or not.
        kinds: the types of all tensors of the graphs.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self.stored: dict[bytes, tuple[int, int]] = {}
        self.named: set[tuple[str, bytes]] = set()
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
            data = tensor.tobytes()
            self.kinds.add(tensor.dtype)
            self.named.add((value.name or "", hashlib.sha256(data).digest()))
            quantized = value.name is not None and value.name.endswith(QUANTIZED)
            if tensor.nbytes < (1 if quantized else SMALLEST_BYTES):
                continue
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
    """Golden-file entries of stored tensors: `weights/places` (N, 2), offset and length, `weights/sha256` (N, 32)."""
    if not stored:
        return {}
    digests = np.frombuffer(b"".join(stored), dtype=np.uint8).reshape(-1, 32)
    return {"weights/places": np.array([*stored.values()], dtype=np.int64), "weights/sha256": digests}


def precision_of(kinds: Collection[ir.DataType], asked: Precision) -> Precision:
    """The precision that weights of these types are in; as asked where they are too small to be stored in it."""
    kind = ir.DataType
    marks: dict[ir.DataType, Precision] = {
        kind.UINT4: "int4",
        kind.UINT8: "int4",
        kind.INT8: "int8",
        kind.BFLOAT16: "bf16",
        kind.FLOAT16: "fp16",
    }
    found = [precision for mark, precision in marks.items() if mark in kinds]
    return found[0] if found else "fp32" if asked == "fp16" else asked


def check_weights(model: Any, named: Collection[tuple[str, bytes]]) -> None:
    """Checks that a graph's tensor with the name of a parameter or buffer equals it, bit for bit, and that the graphs
    have every table of tokens or places: no text reads all rows of these and of an output layer. The levels of tensors
    with other names, as linear layers in int8 and int4 have, are checked by `quantize`.

    Args:
        model: in the dtype of the precision.
        named: as in `WeightFile`.

    Raises:
        ValueError: one differs, or a table is missing.
    """
    of_model = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    digests = {f"{FORM_PREFIX}{name}": _digests(tensor) for name, tensor in of_model.items()}
    wrong = [name for name, digest in named if name in digests and digest not in digests[name]]
    held = {digest for _, digest in named}
    for name, module in model.named_modules():
        # Of smaller ones the optimiser may compute something else.
        if isinstance(module, nn.Embedding) and module.weight.nbytes >= SMALLEST_BYTES:
            name = f"{FORM_PREFIX}{name}.weight"
            wrong += [] if digests[name] & held else [name]
    for name in wrong:
        raise ValueError(
            f"the bundle was not written: its weights do not hold {name.removeprefix(FORM_PREFIX)} as the model has it"
        )


def _digests(tensor: torch.Tensor) -> set[bytes]:
    """The sha256 of a tensor as it is, transposed, and in bfloat16."""
    forms = [tensor, tensor.mT if tensor.dim() > 1 else tensor, tensor.bfloat16()]
    flat = [form.detach().contiguous().flatten().view(torch.uint8).numpy() for form in forms]
    return {hashlib.sha256(form.tobytes()).digest() for form in flat}
