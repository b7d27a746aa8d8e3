"""Fix for values of nested class options, such as `--data.tokenizer.lexicon={...}`.

jsonargparse passes a parsed value to the parser of the nested class as its Python repr, in which null becomes "None"
and backslashes are doubled. With this fix it is passed as JSON, once per nesting level.
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
    """Applies the fix to every parser of this process."""
    _typehints.adapt_class_type = _adapt_as_json
