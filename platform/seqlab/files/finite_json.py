"""Strict JSON for browsers; numbers that are not finite become null."""

from __future__ import annotations

import json
import math
from typing import Any


def dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(finite(value), allow_nan=False, indent=indent)


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(finite(value), allow_nan=False, separators=(",", ":"))


def in_page(value: Any) -> str:
    """JSON for a script element of a page, escaped so that it cannot close the element."""
    return compact(value).replace("<", "\\u003c")


def finite(value: Any) -> Any:
    """Plain values with None in place of every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
