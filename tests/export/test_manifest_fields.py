"""One table of a manifest's fields: the dataclasses have them, and all three readers take a newer minor version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import GenericAlias
from typing import Any, get_type_hints

import pytest

import runtime.programs
import web.programs
from export.planted import with_statement
from runtime.conftest import Copy
from seqlab_export.runner.manifest import CLASSES, MINOR, VERSION, BundleError, load_manifest
from seqlab_export.runner.manifest_kinds import fields_of
from seqlab_export.runner.tables import MANIFEST_FIELDS


def type_of(kind: Mapping[str, Any]) -> Any:
    [(name, argument)] = kind.items()
    if name == "nullable":
        return type_of(argument) | None
    if name == "list":
        return GenericAlias(tuple, (type_of(argument), ...))
    if name == "map":
        return GenericAlias(dict, (str, type_of(argument)))
    plain: dict[str, Any] = {"count": int, "number": float, "dim": str | int}
    return CLASSES.get(name) or plain.get(name, str)


@pytest.mark.parametrize("name", MANIFEST_FIELDS["objects"])
def test_a_dataclass_has_the_fields_of_the_table(name: str) -> None:
    hints = get_type_hints(CLASSES[name])
    found = {field.name: hints[field.name] for field in fields(CLASSES[name])}
    assert [*found.items()] == [(field, type_of(kind)) for field, kind in fields_of(name).items()]


def spoil(folder: Path, place: list[Any], minor: Any) -> None:
    """Adds an unknown field to an object of the manifest, and the minor version."""
    content = json.loads((folder / "manifest.json").read_text())
    within = content
    for key in place:
        within = within[key]
    within["more"] = 1
    with_statement(**content, minor=minor)(folder)


def refusals(folder: Path) -> list[str]:
    """The sentence of each reader that refuses the manifest."""
    found = []
    try:
        load_manifest(folder)
    except BundleError as error:
        found.append(str(error))
    for done in (runtime.programs.run("info", folder), web.programs.run("tests/answer.ts", folder)):
        if done.returncode:
            found.append(done.stderr if isinstance(done.stderr, str) else done.stderr.decode())
    return found


PLACES: list[list[Any]] = [[], ["provenance"], ["step"], ["model", "inputs", 0], ["state", 0]]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_unknown_fields_of_a_newer_minor_version_alone_are_ignored(place: list[Any], copy: Copy) -> None:
    spoil(folder := copy("gru"), place, MINOR + 1)
    assert refusals(folder) == []
    with_statement(minor=MINOR)(folder)
    said = refusals(folder)
    assert len(said) == 3 and all("more" in text and "which nothing here knows" in text for text in said), said


@pytest.mark.parametrize("minor", [-1, "1", 1.0, None, True, 2**40 + 1], ids=str)
def test_a_minor_version_is_a_whole_number(minor: Any, copy: Copy) -> None:
    with_statement(minor=minor)(folder := copy("gru"))
    said = refusals(folder)
    assert len(said) == 3 and all("the manifest.minor must be a whole number from 0 to 2^40" in text for text in said)


def test_a_newer_minor_version_lacks_nothing_and_keeps_its_version(copy: Copy) -> None:
    with_statement(minor=MINOR + 1, seq_len=0)(folder := copy("gru"))
    said = refusals(folder)
    assert len(said) == 3 and all("seq_len must be a whole number from 1" in text for text in said), said
    for version, more in ((VERSION - 1, "; export it again"), (VERSION + 1, "")):
        with_statement(seq_len=32, version=version)(folder)
        said = refusals(folder)
        expected = f"version {version}, this program reads version {VERSION}{more}"
        assert len(said) == 3 and all(text.rstrip().endswith(expected) for text in said), said
