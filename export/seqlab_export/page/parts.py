"""Number of parameters in each part of a bundle's model, by the names of the weights in its graphs."""

from __future__ import annotations

from math import prod
from pathlib import Path

import onnx

from seqlab_export.runner.manifest import load_manifest

DEEPEST = 3
"""Most names of modules in the name of a part, such as `stack.blocks.0`."""

CONSTANTS = {"buckets", "decay_gap", "draw", "powers", "value"}
"""The last names of what a model keeps and does not train."""


def parts_of(bundle: Path) -> list[tuple[str, int]]:
    """The parts by name, each with its parameters, in the order of the graphs. A weight that the graphs share, and one
    of a quantised layer, counts once, by its elements; scales do not."""
    found: dict[str, int] = {}
    for graph in load_manifest(bundle).graphs:
        for weight in onnx.load(bundle / graph.file, load_external_data=False).graph.initializer:
            if "." in weight.name and weight.name.rpartition(".")[2] not in CONSTANTS:
                found.setdefault(weight.name, prod(weight.dims))
    parts: dict[str, int] = {}
    for name, count in found.items():
        part = ".".join(name.removeprefix("model.").split(".")[:-1][:DEEPEST])
        parts[part] = parts.get(part, 0) + count
    return list(parts.items())
