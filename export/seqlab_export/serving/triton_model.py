"""The step of Triton's ensemble that runs the graphs: ids to ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqlab_export.runner.bundle_text_model import open_text_model
from seqlab_export.serving.triton_text import Step, Tensors, pack, to_text, unpack


class Model(Step):
    """`input_ids` (N, T) and the options to `output_ids` (N, T), of tokens or classes, and scores (N,)."""

    def open(self, bundle: Path) -> None:
        self.model = open_text_model(bundle, provider=self.config["parameters"]["provider"]["string_value"])

    def answer(self, given: Tensors) -> Tensors:
        values = {option.name: given[option.name].item() for option in self.model.options if option.name in given}
        options = {name: to_text(value) if isinstance(value, bytes) else value for name, value in values.items()}
        rows, scores = self.model.run(unpack("input", given), options)
        return {**pack("output", rows), **{name: np.array(values) for name, values in scores.items()}}
