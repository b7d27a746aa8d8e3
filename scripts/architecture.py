"""The rooms of the packages and what imports what, read off their files: `docs/architecture.md`.

Run as a program it prints the page.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from repository.source_tree import PACKAGES, imports_at_run_time, imports_when_loaded, python_files  # noqa: E402

Arrows = Mapping[str, set[str]]

PAGE = """# The rooms

Made by `python scripts/architecture.py` from the imports themselves; a test keeps this page so, and the drawing without
a circle. A room is a folder of one of the packages, or the files beside its folders.

An arrow is an import: what stands above knows what stands below it. Arrows that follow from others are left out. A
dotted one is taken only when a function runs: so a command loads what it needs, and nothing else.

```mermaid
flowchart TD
{drawing}
```

| room | what it holds | imports |
|---|---|---|
{table}
"""


def rooms() -> dict[str, list[Path]]:
    """The files of each room, by its name: `package/folder`, or `package` for the files beside the folders."""
    found: dict[str, list[Path]] = {}
    for package, folder in PACKAGES.items():
        for path in python_files(folder):
            inner = path.relative_to(folder).parts[:-1]
            if inner or not path.name.startswith("__"):  # public faces and doors name every room
                found.setdefault("/".join([package, *inner[:1]]), []).append(path)
    return found


def arrows(files: Mapping[str, list[Path]], *, late: bool) -> dict[str, set[str]]:
    """The rooms that each room imports; `late`: also when a function runs."""
    found: dict[str, set[str]] = {}
    for room, paths in files.items():
        names = {name for path in paths for name in (imports_at_run_time(path) if late else imports_when_loaded(path))}
        found[room] = {of for name in names if (of := _room_of(name, files)) not in (None, room)}
    return found


def _room_of(name: str, files: Mapping[str, list[Path]]) -> str | None:
    package, *inner = name.split(".")
    if package not in PACKAGES:
        return None
    folder = "/".join([package, *inner[:1]])
    return (
        folder if folder in files else package if inner and (PACKAGES[package] / f"{inner[0]}.py").is_file() else None
    )


def without_detours(found: Arrows) -> dict[str, set[str]]:
    """The arrows that follow from no others."""
    below: dict[str, set[str]] = {}
    for room in TopologicalSorter(found).static_order():  # raises CycleError where there is a circle
        below[room] = found[room].union(*(below[of] for of in found[room]))
    return {room: {of for of in to if not any(of in below[other] for other in to)} for room, to in found.items()}


def page() -> str:
    files = rooms()
    loaded, run = arrows(files, late=False), arrows(files, late=True)
    shown = without_detours(run)
    return PAGE.format(drawing="\n".join(_drawing(files, shown, loaded)), table="\n".join(_table(files, run)))


def _drawing(files: Mapping[str, list[Path]], shown: Arrows, loaded: Arrows) -> Iterator[str]:
    for package in PACKAGES:
        yield f"  subgraph package_{package} [{package}]"
        yield from (
            f'    {room.replace("/", "_")}["{_title(room, files)}"]' for room in files if _package(room) == package
        )
        yield "  end"
    for room in sorted(shown):
        for of in sorted(shown[room]):
            line = "-->" if of in loaded[room] else "-.->"
            yield f"  {room.replace('/', '_')} {line} {of.replace('/', '_')}"


def _table(files: Mapping[str, list[Path]], run: Arrows) -> Iterator[str]:
    for room in files:
        imported = ", ".join(f"`{of}`" for of in sorted(run[room]))
        yield f"| `{room}` | {_holds(room, files)} | {imported} |"


def _package(room: str) -> str:
    return room.partition("/")[0]


def _title(room: str, files: Mapping[str, list[Path]]) -> str:
    if "/" in room:
        return room.partition("/")[2]
    names = [path.name for path in files[room]]
    return "<br>".join(names) if len(names) <= 6 else f"{len(names)} files"


def _holds(room: str, files: Mapping[str, list[Path]]) -> str:
    if "/" not in room:
        return ", ".join(f"`{path.name}`" for path in files[room])
    [init] = [path for path in files[room] if path.name == "__init__.py" and path.parent.name == room.partition("/")[2]]
    text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    print(page(), end="")
