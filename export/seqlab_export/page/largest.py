"""The largest bundles that a browser opens in a page; docs/page.md has the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqlab_export.runner.manifest import FILE_NAME, SEAL_NAME, load_manifest

MOST_BYTES = (2**29 - 24) // 4 * 3
"""Largest file in a page, in bytes: its base64 is one string, and a browser reads one above V8's limit as empty."""
MOST_BYTES_IN_ALL = 4 * MOST_BYTES
"""Largest total of the files in a page, in bytes: onnxruntime-web has 4 GiB of memory for all models."""
LEAST_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4}
"""Fewest bits that a weight takes in a bundle, by precision."""
OF_16_BITS = 3
"""Factor of a 16-bit bundle in the total: onnxruntime-web widens its weights to 32 bits, beside the file."""
REMEDY = "`seqlab export RUN --format html --precision int4` makes a smaller page"


def names_of(bundle: Path) -> list[str]:
    """Names of a bundle's files."""
    return [FILE_NAME, SEAL_NAME, *load_manifest(bundle).files]


def check_sizes(bundles: Sequence[Path]) -> None:
    """Checks that a browser can open bundles in one page.

    Raises:
        ValueError: a file, or all files together, are too large, or a folder is not a bundle.
    """
    total = 0
    for bundle in bundles:
        sizes = {path: path.stat().st_size for name in names_of(bundle) if (path := bundle / name).is_file()}
        for path, size in sizes.items():
            check_size(str(path), size)
        total += sum(sizes.values()) * (OF_16_BITS if load_manifest(bundle).precision in ("bf16", "fp16") else 1)
    if total > MOST_BYTES_IN_ALL:
        raise ValueError(
            f"the bundles take {total} bytes in a browser, which opens at most {MOST_BYTES_IN_ALL} in a page; {REMEDY}"
        )


def check_weights(parameters: int, precision: str) -> None:
    """Raises ValueError if the bundle of a model with so many parameters would be too large for a page."""
    check_size("the file of weights", parameters * LEAST_BITS[precision] // 8)


def check_size(name: str, size: int) -> None:
    """Raises ValueError if a file of a bundle is too large for a page."""
    if size > MOST_BYTES:
        raise ValueError(f"{name} has {size} bytes, but a browser opens at most {MOST_BYTES} of a file; {REMEDY}")
