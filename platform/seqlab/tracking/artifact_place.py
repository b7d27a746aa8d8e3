"""Places that the files of a run may be in: inside its store, behind its server, or where the user says besides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

ALLOWED = "SEQLAB_ARTIFACTS"
"""The environment's name for other places of runs' files: folders, or addresses such as s3://bucket, between commas."""


def check_folder(folder: Path, root: Path, run_id: str) -> Path:
    """The folder, or a file in it, where all links lead into the store.

    Raises:
        ValueError: it is elsewhere, and the user has not allowed that.
    """
    places = [root, *(Path(place).expanduser() for place in _allowed() if "://" not in place)]
    if not any(folder.resolve().is_relative_to(place.resolve()) for place in places):
        where = folder.resolve()
        raise ValueError(f"run {run_id} has its files in {where}, outside of its store {root}; {_allow(str(where))}")
    return folder


def are_names(parts: Sequence[str]) -> bool:
    """True where a file system takes each part of a path."""
    return all(len(part.encode()) < 256 and "\0" not in part for part in parts)


def check_address(address: str, server: str, run_id: str) -> None:
    """Raises ValueError where a server has a run's files elsewhere than behind its own address, and the user has not
    allowed that."""
    parts = urlsplit(address)
    proxied = parts.scheme == "mlflow-artifacts" and parts.netloc in ("", urlsplit(server).netloc)
    inside = any(address == place or address.startswith(f"{place.rstrip('/')}/") for place in _allowed())
    if ".." in parts.path.split("/") or not (proxied or inside):
        raise ValueError(
            f"MLflow at {server} has the files of run {run_id} in {address!r}, not behind its own address; "
            f"{_allow(address)}"
        )


def _allowed() -> list[str]:
    return [place.strip() for place in os.environ.get(ALLOWED, "").split(",") if place.strip()]


def _allow(place: str) -> str:
    return f"where that is right, allow it: {ALLOWED}={place}"
