"""What several processes do together, by name; each is called on every rank with a folder of the files of `kinds`, and
returns what JSON has. A case of your own is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from scale.fits import KINDS, fit

CASES: dict[str, Callable[[Path], Any]] = {
    **{
        f"{kind}, {strategy}": partial(fit, kind=kind, strategy=strategy)
        for kind in KINDS
        for strategy in ("ddp", "fsdp2")
    },
}

PLAIN = [f"{kind}, fsdp2" for kind in KINDS] + [f"{kind}, ddp" for kind in ("masked", "translation", "classification")]
"""Those of a plain `make test`, with two ranks; the others are slow."""
