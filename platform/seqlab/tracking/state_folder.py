"""Folder for writes that a store has not taken yet: the user's own, never the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

if TYPE_CHECKING:
    from seqlab.tracking.store import Store

STATE = "SEQLAB_STATE"
"""The environment's name for another state folder."""


def unsent(store: Store) -> Path:
    """The folder of what this machine has for a store. A store is a folder that people send each other, or a server:
    nothing that it brings along is in here, and nothing in here goes to another store."""
    state = Path(os.environ.get(STATE) or user_state_path("seqlab", appauthor=False))
    return state / "unsent" / hashlib.sha256(f"{store.uri}\n{store.root}".encode()).hexdigest()[:16]
