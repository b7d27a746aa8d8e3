"""Reader of JSON by the kinds of `manifest_fields.json`. Standard library only.

The kind of a field is an object with one key: `text`, `count` (an integer, at least the number given), `number`,
`nullable`, `list` or `map` of another kind, one of the table's lists of names (`dtype`, `dim`, which may be an integer,
`precision`, `target`), or one of its `objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any

from seqlab_export.runner.graph_file import BundleError
from seqlab_export.runner.tables import MANIFEST_FIELDS

MOST_BITS: int = MANIFEST_FIELDS["most_number_bits"]
"""Base-2 logarithm of the largest number accepted in a manifest; larger sizes are implausible on any machine."""

_EXPECTED = {"text": "a string", "number": "a finite number", "list": "a list", "map": "an object"}


def fields_of(name: str) -> dict[str, Any]:
    """The kinds of an object's fields by name, including those of the object that it extends."""
    base = MANIFEST_FIELDS["extends"].get(name)
    return {**(fields_of(base) if base else {}), **MANIFEST_FIELDS["objects"][name]}


@dataclass(frozen=True)
class Reader:
    """Converts parsed JSON to Python.

    Attributes:
        classes: the class of each of the table's objects.
        newer: if True, unknown fields are ignored.
    """

    classes: Mapping[str, Callable[..., Any]]
    newer: bool = False

    def read(self, kind: Mapping[str, Any], content: Any, place: str) -> Any:
        """Converts a value of a kind; `place` names it in error messages.

        Raises:
            BundleError: the content is of another kind.
        """
        [(name, argument)] = kind.items()
        if name == "nullable":
            return None if content is None else self.read(argument, content, place)
        if name in self.classes:
            return self._read_object(name, content, place)
        if name == "list" and isinstance(content, list):
            return tuple(self.read(argument, item, f"{place}[{k}]") for k, item in enumerate(content))
        if name == "map" and isinstance(content, dict):
            return {key: self.read(argument, item, f"{place}.{key}") for key, item in content.items()}
        if name == "number" and type(content) in (int, float) and abs(content) <= float_info.max:
            return float(content)
        if name == "count" or (name == "dim" and not isinstance(content, str)):
            least = argument or 0
            if type(content) is int and least <= content <= 2**MOST_BITS:
                return content
            raise BundleError(f"{place} must be a whole number from {least} to 2^{MOST_BITS}, got {content!r}")
        accepted = MANIFEST_FIELDS.get(f"{name}s")
        if isinstance(content, str) and (name == "text" or (accepted and content in accepted)):
            return content
        expected = f"one of {', '.join(accepted)}" if accepted else _EXPECTED[name]
        raise BundleError(f"{place} must be {expected}, got {content!r}")

    def _read_object(self, name: str, content: Any, place: str) -> Any:
        kinds = fields_of(name)
        if not isinstance(content, dict):
            raise BundleError(f"{place} must be an object with {', '.join(kinds)}, got {content!r}")
        if missing := [field for field in kinds if field not in content]:
            raise BundleError(f"{place} lacks {', '.join(missing)}")
        if not self.newer and (unknown := [field for field in content if field not in kinds]):
            raise BundleError(f"{place} has {', '.join(map(repr, unknown))}, which nothing here knows")
        return self.classes[name](**{key: self.read(kinds[key], content[key], f"{place}.{key}") for key in kinds})
