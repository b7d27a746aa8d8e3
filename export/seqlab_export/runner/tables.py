"""Tables that the runtimes of all three languages share, as JSON beside this file. Standard library only.

`manifest_fields.json` has the fields of a bundle's manifest, each of a kind that `manifest_kinds` explains, and the
names and limits that it accepts. `proof_constants.json` has the constants of the proof, which `cases` explains.
`operators.json` has the operators of each target, and those that CUDA lacks.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))


MANIFEST_FIELDS: dict[str, Any] = table("manifest_fields")
