"""Files of a bundle: inside its folder, and identified by their content."""

from __future__ import annotations

import hashlib
from pathlib import Path


def leads_out(folder: Path, name: str) -> bool:
    """True if a file of a bundle is a link to a file outside the bundle."""
    return not (folder / name).resolve().is_relative_to(folder.resolve())


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
