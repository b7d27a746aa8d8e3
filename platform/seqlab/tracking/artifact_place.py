"""Allowed locations of a run's files: inside its store, behind its server, or where the user permits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

ALLOWED = "SEQLAB_ARTIFACTS"
"""Environment variable with further allowed locations: folders or addresses such as s3://bucket, comma-separated."""


def check_folder(folder: Path, root: Path, run_id: str) -> Path:
    """Returns a folder or file, after checking that it resolves to a path in the store or another allowed location.

    Raises:
        ValueError: it resolves elsewhere, and the user has not allowed that.
    """
    places = [root, *(Path(place).expanduser() for place in _allowed() if "://" not in place)]
    if not any(folder.resolve().is_relative_to(place.resolve()) for place in places):
        where = folder.resolve()
        raise ValueError(f"run {run_id} has its files in {where}, outside its store {root}; {_allow(str(where))}")
    return folder


def are_names(parts: Sequence[str]) -> bool:
    """True if each part of a path is a valid file name."""
    return all(len(part.encode()) < 256 and "\0" not in part for part in parts)


def check_address(address: str, server: str, run_id: str) -> None:
    """Raises ValueError if a run's files are not served from the server's own address, unless the user has allowed
    their address."""
    parts = urlsplit(address)
    proxied = parts.scheme == "mlflow-artifacts" and parts.netloc in ("", urlsplit(server).netloc)
    inside = any(address == place or address.startswith(f"{place.rstrip('/')}/") for place in _allowed())
    if ".." in parts.path.split("/") or not (proxied or inside):
        raise ValueError(
            f"MLflow at {server} puts the files of run {run_id} in {address!r}, outside its own address; "
            f"{_allow(address)}"
        )


def _allowed() -> list[str]:
    return [place.strip() for place in os.environ.get(ALLOWED, "").split(",") if place.strip()]


def _allow(place: str) -> str:
    return f"to allow this, set {ALLOWED}={place}"
