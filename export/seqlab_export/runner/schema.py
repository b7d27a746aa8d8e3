"""The manifest's JSON Schema (draft 2020-12), made of `manifest_fields.json`: `docs/manifest.schema.json`.

Run as a program it prints the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seqlab_export.runner.manifest import FORMAT, MINOR, VERSION
from seqlab_export.runner.manifest_kinds import MOST_BITS, fields_of
from seqlab_export.runner.tables import MANIFEST_FIELDS

_PLAIN = {"text": {"type": "string"}, "number": {"type": "number"}}


def json_schema() -> dict[str, Any]:
    schema = _schema({"manifest": {}})
    head = {"format": {"const": FORMAT}, "version": {"const": VERSION}}
    schema["properties"] = head | {"minor": {"const": MINOR}} | schema["properties"]
    schema["required"] = [*head, *schema["required"]]
    schema["properties"]["files"]["additionalProperties"]["pattern"] = "^[0-9a-f]{64}$"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "manifest.json of a seqlab bundle",
    } | schema


def _schema(kind: Mapping[str, Any]) -> dict[str, Any]:
    [(name, argument)] = kind.items()
    if name in _PLAIN:
        return dict(_PLAIN[name])
    if name == "count":
        return {"type": "integer", "minimum": argument, "maximum": 2**MOST_BITS}
    if name == "nullable":
        return {"anyOf": [_schema(argument), {"type": "null"}]}
    if name == "list":
        return {"type": "array", "items": _schema(argument)}
    if name == "map":
        return {"type": "object", "additionalProperties": _schema(argument)}
    if name in MANIFEST_FIELDS["objects"]:
        properties = {field: _schema(inner) for field, inner in fields_of(name).items()}
        return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    accepted = {"enum": [*MANIFEST_FIELDS[f"{name}s"]]}
    return {"anyOf": [accepted, _schema({"count": 0})]} if name == "dim" else accepted


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
