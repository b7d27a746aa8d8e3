"""seqlab's classes and their options, parsed from source, because importing a task takes seconds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from seqlab.config.configs import BLOCK_MODULES


class Argument(NamedTuple):
    """An option of a class: its type and default in source form, and its help from the class docstring."""

    name: str
    hint: str
    default: str
    help: str


def summary(name: str) -> str:
    """First sentence of a class docstring."""
    text = " ".join((ast.get_docstring(_class(name)) or "").partition("\n\n")[0].split())
    return re.split(r"\. (?=[A-Z`\"])", text)[0].rstrip(".,:;")


def arguments(name: str) -> list[Argument]:
    """Options of a class: optional and keyword-only constructor arguments, and those that `**kwargs` passes on to the
    base class."""
    node = _class(name)
    above = [base for base in _bases(node) if base in _classes()]
    init = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    if init is None:
        return arguments(above[0]) if above else []
    helps = _helps(node)
    args = init.args
    optional = args.args[len(args.args) - len(args.defaults) :]
    given = [*zip(optional, args.defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    found = [
        Argument(
            arg.arg,
            "" if arg.annotation is None else ast.unparse(arg.annotation),
            "" if default is None else ast.unparse(default).strip("'"),
            helps.get(arg.arg, ""),
        )
        for arg, default in given
        if arg.arg != "layer"  # a mixer's index
    ]
    if args.kwarg is not None and above:
        own = {argument.name for argument in found}
        found += [argument for argument in arguments(above[0]) if argument.name not in own]
    return found


def is_known(name: str) -> bool:
    """True if one of seqlab's classes has this name."""
    return name in _classes()


def choices(hint: str) -> list[str]:
    """Classes that an option of this type accepts, sorted: subclasses of every class or factory type in the hint."""
    wanted = set(re.findall(r"[\w.]+", re.sub(r"\[\[.*?\]", "[", hint)))
    if "nn.Module" in wanted:
        return [name for name in _public() if "models" in _classes()[name][0].parts]
    return [name for name in _public() if wanted & _ancestry(name)]


@cache
def _classes() -> dict[str, tuple[Path, ast.ClassDef]]:
    """Every class of the packages with short block names, by name; blocks take precedence where names clash."""
    found: dict[str, tuple[Path, ast.ClassDef]] = {}
    blocks = {_place(module) for module in BLOCK_MODULES}
    packages = sorted({module.partition(".")[0] for module in BLOCK_MODULES})
    paths = [path for package in packages for path in _folder(package).rglob("*.py")]
    for path in sorted(paths, key=lambda path: not blocks.isdisjoint({path.with_suffix(""), *path.parents})):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^class [A-Z]", text, re.MULTILINE):
            found |= {node.name: (path, node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    return found


@cache
def _public() -> list[str]:
    """Concrete classes that a config may name."""
    names = set()
    for path in map(_place, BLOCK_MODULES):
        if path.is_dir():
            body = ast.parse((path / "__init__.py").read_text(encoding="utf-8")).body
            names |= {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
        else:
            names |= {name for name, (file, _) in _classes().items() if file == path.with_suffix(".py")}
    return sorted(name for name in names if is_known(name) and not _is_abstract(_class(name)))


def _place(module: str) -> Path:
    """Folder of a package, or path of a module without .py."""
    package, *rest = module.split(".")
    return _folder(package).joinpath(*rest)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _class(name: str) -> ast.ClassDef:
    return _classes()[name][1]


def _bases(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        yield ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def _ancestry(name: str) -> set[str]:
    """Names of a class and of all its known ancestors."""
    above = _bases(_class(name)) if is_known(name) else ()
    return {name}.union(*map(_ancestry, above))


def _is_abstract(node: ast.ClassDef) -> bool:
    functions = [entry for entry in node.body if isinstance(entry, ast.FunctionDef)]
    decorators = {ast.unparse(decorator) for function in functions for decorator in function.decorator_list}
    return "ABC" in _bases(node) or "abstractmethod" in decorators


def _helps(node: ast.ClassDef) -> dict[str, str]:
    """Help text of each argument, from the class docstring."""
    section = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", ast.get_docstring(node) or "", re.DOTALL | re.MULTILINE)
    found: dict[str, str] = {}
    for entry in re.split(r"^    (?=\S)", section[1] if section else "", flags=re.MULTILINE):
        names, _, text = entry.partition(":")
        first, *others = [name.strip() for name in names.split(",")]
        found |= {first: " ".join(text.split()), **dict.fromkeys(others, f"see {first}")}
    return found
