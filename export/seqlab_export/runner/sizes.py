"""Size checks of a bundle's files, made before the files are hashed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from seqlab_export.runner.graph_file import BundleError, end_of_weights
from seqlab_export.runner.tables import MANIFEST_FIELDS

WEIGHTS_NAME: str = MANIFEST_FIELDS["weights_name"]
MOST_GRAPH_BYTES, MOST_BYTES = 2 ** MANIFEST_FIELDS["most_graph_bits"], 2 ** MANIFEST_FIELDS["most_files_bits"]
"""Maximum size in bytes of a graph (without external weights) or a manifest, and of all files except the weights."""


def find_wrong_sizes(folder: Path, names: list[str], graphs: set[str]) -> dict[str, str]:
    """Files that are implausibly large: a sparse file takes no disk space, but a long time to hash."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    weights = sizes.pop(WEIGHTS_NAME, 0)
    wrong = {
        name: f"it has {size} bytes, a graph has at most {MOST_GRAPH_BYTES}"
        for name, size in sizes.items()
        if name in graphs and size > MOST_GRAPH_BYTES
    }
    if (total := sum(sizes.values())) > MOST_BYTES:
        wrong |= dict.fromkeys(
            sizes, f"all files but the weights have {total} bytes, at most {MOST_BYTES} are accepted"
        )
    needed = min(weights, MOST_BYTES)
    if not wrong and graphs <= sizes.keys():
        with suppress(BundleError):  # reported later, by its hash or when opened
            needed = max(end_of_weights(folder / name) for name in graphs)
    if weights > needed:
        wrong[WEIGHTS_NAME] = f"it has {weights} bytes, the graphs name {needed}"
    return wrong
