"""Two steps of Triton's ensemble, texts to ids and ids to texts, and the base class of all steps. No onnxruntime.

N texts, T longest row of ids in a request.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from numpy.typing import NDArray

from seqlab.decoding import padded_right
from seqlab.decoding.text import Rows
from seqlab_export.runner.bundle_text_model import load_codec

Tensors = dict[str, NDArray[Any]]


class Step(ABC):
    """A model of Triton's Python backend: the names of the public methods are Triton's."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the bundle in the folder of the model's version."""
        self.config = json.loads(args["model_config"])
        self.open(Path(args["model_repository"]) / args["model_version"] / "bundle")

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request; an invalid request gets an error response without affecting the others."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            found = self.answer({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in found.items()])

    @abstractmethod
    def open(self, bundle: Path) -> None: ...

    @abstractmethod
    def answer(self, given: Tensors) -> Tensors: ...


class Tokenizer(Step):
    """`text` (N,) to `input_ids` (N, T)."""

    def open(self, bundle: Path) -> None:
        self.codec = load_codec(bundle)

    def answer(self, given: Tensors) -> Tensors:
        return pack("input", self.codec.encode([to_text(item) for item in given["text"]]))


class Detokenizer(Step):
    """`output_ids` (N, T), of tokens or classes, to texts (N,) in the output named in the configuration."""

    def open(self, bundle: Path) -> None:
        self.codec = load_codec(bundle)

    def answer(self, given: Tensors) -> Tensors:
        texts = [text.encode() for text in self.codec.decode(unpack("output", given))]
        return {self.config["output"][0]["name"]: np.array(texts, dtype=np.object_)}


def to_text(data: bytes) -> str:
    """Decodes UTF-8; invalid bytes are kept for the tokenizer to accept or reject."""
    return data.decode("utf-8", "surrogateescape")


def pack(kind: str, rows: Rows) -> Tensors:
    """Tensors `<kind>_ids` (N, T), right-padded, and `<kind>_lengths` (N,)."""
    tokens, mask = padded_right(rows)
    return {f"{kind}_ids": tokens, f"{kind}_lengths": mask.sum(axis=1)}


def unpack(kind: str, tensors: Tensors) -> Rows:
    """The rows that `pack` packed.

    Raises:
        ValueError: the lengths do not fit the rows.
    """
    ids, lengths = tensors[f"{kind}_ids"], tensors[f"{kind}_lengths"].tolist()
    if len(lengths) != len(ids):
        raise ValueError(f"{kind}_ids has {len(ids)} rows, {kind}_lengths {len(lengths)}; give a length for each")
    if wrong := [length for length in lengths if not 0 <= length <= ids.shape[1]]:
        raise ValueError(f"{kind}_lengths has {wrong[0]}, a row of {kind}_ids has {ids.shape[1]}")
    return [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
