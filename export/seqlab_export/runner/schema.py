"""The manifest's JSON Schema (draft 2020-12), generated from its dataclasses: `docs/manifest.schema.json`.

Run as a program it prints the schema.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from seqlab_export.runner.manifest import DTYPES, FORMAT, PRECISIONS, TARGETS, VERSION, Manifest

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}

_ACCEPTED = {"dtype": list(DTYPES), "precision": list(PRECISIONS), "target": list(TARGETS)}


def json_schema() -> dict[str, Any]:
    schema = _schema(Manifest)
    head = {"format": {"const": FORMAT}, "version": {"const": VERSION}}
    schema["properties"] = head | schema["properties"]
    schema["required"] = [*head, *schema["required"]]
    schema["properties"]["files"]["additionalProperties"]["pattern"] = "^[0-9a-f]{64}$"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "manifest.json of a seqlab bundle",
    } | schema


def _schema(kind: Any) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        properties = {field.name: _schema(hints[field.name]) for field in fields(kind)}
        for name in properties.keys() & _ACCEPTED.keys():
            properties[name] = {"enum": _ACCEPTED[name]}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if arguments:
        return {"anyOf": [_schema(argument) for argument in arguments]}
    return {"type": _PLAIN[kind]}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
