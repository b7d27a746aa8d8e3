"""Where the repository's sources are, and what they import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "seqlab": ROOT / "platform" / "seqlab",
    "seqlab_data": ROOT / "datamodules" / "seqlab_data",
    "seqlab_export": ROOT / "export" / "seqlab_export",
}


def python_files(folder: Path) -> list[Path]:
    """The Python files below a folder, or the file itself."""
    return [folder] if folder.suffix == ".py" else sorted(folder.rglob("*.py"))


def python_blocks(page: str) -> list[str]:
    """The Python examples of a page, by its path in the repository."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def all_imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    return {name for node in ast.walk(ast.parse(path.read_text())) for name in _imported(node)}


def imports_when_loaded(path: Path) -> set[str]:
    """The modules that a file imports as it is itself imported: not in functions, not for type checking only."""
    return {name for node in _executed(ast.parse(path.read_text())) for name in _imported(node)}


def within(name: str, *packages: str) -> bool:
    """Whether a module is one of `packages` or below one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for branch in node.orelse:
                yield branch
                yield from _executed(branch)
            continue
        yield node
        yield from _executed(node)


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import in line {node.lineno}"
        assert node.module is not None
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()
