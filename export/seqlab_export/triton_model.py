"""What Triton's Python backend runs; `triton` writes the repository around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from numpy.typing import NDArray

from seqlab_export.text_model import open_text_model


class TritonPythonModel:
    """Answers the texts of each request: the name and the methods are Triton's."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the bundle in the folder of the model's version."""
        provider = json.loads(args["model_config"])["parameters"]["provider"]["string_value"]
        version = Path(args["model_repository"]) / args["model_version"]
        self.model = open_text_model(version / "bundle", provider=provider)

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request; what a request got wrong is its own response's error."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        given = {tensor.name(): tensor.as_numpy().ravel().tolist() for tensor in request.inputs()}
        texts = [_text(item) for item in given.pop("text")]
        options = {name: _text(value) if isinstance(value, bytes) else value for name, [value] in given.items()}
        try:
            answers = self.model.answer(texts, options)
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        outputs = [
            pb_utils.Tensor(name, _array([answer[name] for answer in answers], kind))
            for name, kind in self.model.outputs.items()
        ]
        return pb_utils.InferenceResponse(outputs)


def _text(data: bytes) -> str:
    """What is not UTF-8 is kept for the tokenizer to take or refuse."""
    return data.decode("utf-8", "surrogateescape")


def _array(values: list[Any], kind: type) -> NDArray[Any]:
    if kind is str:
        return np.array([value.encode() for value in values], dtype=np.object_)
    return np.array(values, dtype=np.float64)
