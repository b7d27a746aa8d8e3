"""Options inside nested classes, as in `--data.tokenizer.lexicon={...}`, keep their values on the way down.

jsonargparse reads a value, and hands it to the parser of the next class as Python's text of it, in which null is
"None" and a backslash is doubled. Here it is handed on as JSON, once for each class on the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jsonargparse import _typehints
from jsonargparse._util import NestedArg

_adapt: Callable[..., Any] = _typehints.adapt_class_type


def _adapt_as_json(value: Any, *args: Any, **settings: Any) -> Any:
    nested = value.get("init_args") if hasattr(value, "get") else None
    if isinstance(nested, NestedArg) and not isinstance(nested.val, str):
        value["init_args"] = NestedArg(nested.key, json.dumps(nested.val, default=str))
    return _adapt(value, *args, **settings)


def keep_nested_values() -> None:
    """Has every parser of this process keep them."""
    _typehints.adapt_class_type = _adapt_as_json
