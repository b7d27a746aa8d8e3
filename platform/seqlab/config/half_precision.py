"""Training with half-precision weights (`bf16-true`, `16-true`)."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.plugins.precision import HalfPrecision

from seqlab.batch import LabelledBatch


class HalfInputs(HalfPrecision):
    """Lightning's half precision, except that targets of a labelled batch are not rounded, because they are scored."""

    def convert_input(self, data: Any) -> Any:
        converted = super().convert_input(data)
        return converted._replace(targets=data.targets) if isinstance(data, LabelledBatch) else converted
