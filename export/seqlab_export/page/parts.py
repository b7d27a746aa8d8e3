"""Number of parameters in each part of a bundle's model, by the names of the weights in its graphs."""

from __future__ import annotations

from math import prod
from pathlib import Path

import onnx

from seqlab_export.runner.manifest import load_manifest

DEEPEST = 3
"""Maximum number of module names in the name of a part, such as `stack.blocks.0`."""

CONSTANTS = {"buckets", "decay_gap", "draw", "powers", "value"}
"""Last name components of a model's non-trainable constants."""


def parts_of(bundle: Path) -> list[tuple[str, int]]:
    """Names of the parts, each with its number of parameters, in graph order. A weight counts once, by its elements,
    even if shared by graphs or quantised; scales do not count."""
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
