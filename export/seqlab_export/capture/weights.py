"""One weight file shared by several graphs: a tensor that occurs in both is stored once."""

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
"""Minimum size of a tensor in the file, in bytes. Smaller tensors stay in their graph, except those with a suffix in
`QUANTIZED`."""
QUANTIZED = ("_quantized", "_scale", "_Q4", "_scales")

FORM_PREFIX = "model."
"""Prefix of a form's weight names, which is followed by the name in its model."""

JOIN = "+"
"""Separator of the names of weights that a graph stores as one, one after the other."""

_ALIGNMENT = 64


class WeightFile:
    """Writes `weights.bin` into a folder while it is open (a context manager).

    Attributes:
        stored: offset and length in bytes of each stored tensor, by the sha256 of its content.
        named: name and sha256 of every tensor of the graphs, including tensors that stay in their graph.
        kinds: data types of all tensors of the graphs.
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
        """Offset of `data` in the file; writes it first if it is new."""
        key = hashlib.sha256(data).digest()
        if key not in self.stored:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self.stored[key] = (self._file.tell(), len(data))
            self._file.write(data)
        return self.stored[key][0]


def describe(stored: Mapping[bytes, tuple[int, int]]) -> dict[str, NDArray[np.generic]]:
    """Golden-file entries of stored tensors: `weights/places` (N, 2), offset and length; `weights/sha256` (N, 32)."""
    if not stored:
        return {}
    digests = np.frombuffer(b"".join(stored), dtype=np.uint8).reshape(-1, 32)
    return {"weights/places": np.array([*stored.values()], dtype=np.int64), "weights/sha256": digests}


def precision_of(kinds: Collection[ir.DataType], asked: Precision) -> Precision:
    """Precision implied by the types of the weights; if there is none, the requested precision, but fp32 for fp16."""
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
    """Checks that each graph tensor named after a parameter or buffer equals it bit for bit, and that the graphs have
    every embedding table: no text reads all rows of an embedding or of an output layer. Tensors with other names, such
    as int8 and int4 linear layers, are checked by `quantize`.

    Args:
        model: model in the dtype of the precision.
        named: as in `WeightFile`.

    Raises:
        ValueError: a tensor differs, or an embedding table is missing.
    """
    of_model = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    tensors = {f"{FORM_PREFIX}{name}": tensor for name, tensor in of_model.items()}
    for joined in {name for name, _ in named if JOIN in name and tensors.keys() >= {*name.split(JOIN)}}:
        tensors[joined] = torch.cat([tensors[part] for part in joined.split(JOIN)])
    digests = {name: _digests(tensor) for name, tensor in tensors.items()}
    wrong = [name for name, digest in named if name in digests and digest not in digests[name]]
    held = {digest for _, digest in named}
    for name, module in model.named_modules():
        # The graph optimiser may fold smaller tables into other constants.
        if isinstance(module, nn.Embedding) and module.weight.nbytes >= SMALLEST_BYTES:
            name = f"{FORM_PREFIX}{name}.weight"
            wrong += [] if digests[name] & held else [name]
    for name in wrong:
        raise ValueError(
            f"the bundle was not written: its weights do not hold {name.removeprefix(FORM_PREFIX)} as the model has it"
        )


def _digests(tensor: torch.Tensor) -> set[bytes]:
    """The sha256 of a tensor unchanged, transposed, and in bfloat16."""
    forms = [tensor, tensor.mT if tensor.dim() > 1 else tensor, tensor.bfloat16()]
    flat = [form.detach().contiguous().flatten().view(torch.uint8).numpy() for form in forms]
    return {hashlib.sha256(form.tobytes()).digest() for form in flat}
