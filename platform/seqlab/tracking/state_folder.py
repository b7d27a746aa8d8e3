"""Folder for unsent writes, in the user's state folder and never in the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

if TYPE_CHECKING:
    from seqlab.tracking.store import Store

STATE = "SEQLAB_STATE"
"""Environment variable that overrides the state folder."""


def unsent(store: Store) -> Path:
    """Folder of this machine's unsent writes for a store. Stores may be shared between people, so the folder is outside
    the store, and each store has its own."""
    state = Path(os.environ.get(STATE) or user_state_path("seqlab", appauthor=False))
    return state / "unsent" / hashlib.sha256(f"{store.uri}\n{store.root}".encode()).hexdigest()[:16]
