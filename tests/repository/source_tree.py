"""The repository's sources and their imports."""

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
    "seqlab_studies": ROOT / "studies" / "seqlab_studies",
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


def imports_at_run_time(path: Path) -> set[str]:
    """The modules that a file imports, in its functions too, but for those of type checking alone."""
    return {name for node in _executed(ast.parse(path.read_text()), in_functions=True) for name in _imported(node)}


def arrows_of_files() -> dict[str, set[str]]:
    """The modules of the packages, and those of them that each imports at run time. A package's `__init__.py`
    stands for the package: whoever imports a name from it imports it."""
    modules = {_module(path, package): path for package in PACKAGES.values() for path in python_files(package)}
    return {name: _known(imports_at_run_time(path), modules) - {name} for name, path in modules.items()}


def _module(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _known(names: set[str], modules: dict[str, Path]) -> set[str]:
    """The modules that are meant by imported names: a module itself, or what a name is imported from."""
    return {name if name in modules else name.rpartition(".")[0] for name in names} & {*modules}


def within(name: str, *packages: str) -> bool:
    """True if a module is one of `packages` or below one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _executed(tree: ast.AST, *, in_functions: bool = False) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not in_functions:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for branch in node.orelse:
                yield branch
                yield from _executed(branch, in_functions=in_functions)
            continue
        yield node
        yield from _executed(node, in_functions=in_functions)


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import in line {node.lineno}"
        assert node.module is not None
        return {f"{node.module}.{alias.name}" for alias in node.names}
    return set()
