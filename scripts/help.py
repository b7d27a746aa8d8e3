"""Help of the classes that a config names, from their signatures and docstrings.

Run as a program it prints what `--help` reads: `python scripts/help.py > platform/seqlab/config/help.json`.
"""

from __future__ import annotations

import abc
import inspect
import json
import re
import sys
from typing import Any

from seqlab.config.configs import BLOCK_MODULES, import_blocks

Classes = dict[str, type]


def main() -> None:
    import_blocks()
    found = {name: one for module in BLOCK_MODULES for name, one in _defined(module).items()}
    bases = _bases(found)
    above = {base.__name__: base for one in found.values() for base in one.__mro__ if _is_ours(base)}
    accepted = {base: bases[base] for base in ("LightningDataModule", "LightningModule")}
    classes: dict[str, Any] = {}
    for name, one in sorted((above | found).items()):
        arguments: dict[str, Any] = {}
        for parameter, said in _options(one):
            default = "" if parameter.default is parameter.empty else parameter.default
            arguments[parameter.name] = {"default": getattr(default, "__name__", str(default)), "help": said}
            if named := _returned(str(parameter.annotation)) & bases.keys():
                key = " | ".join(sorted(named))
                accepted[key] = sorted({below for base in named for below in bases[base]})
                arguments[parameter.name]["accepts"] = key
        classes[name] = {"summary": _summary(one), "arguments": arguments}
    print(json.dumps({"accepted": accepted, "classes": classes}, indent=1))


def _defined(module: str) -> Classes:
    """Classes defined in a module or a package."""
    found = inspect.getmembers(sys.modules[module], inspect.isclass)
    return {name: one for name, one in found if f"{one.__module__}.".startswith(f"{module}.")}


def _is_ours(one: type) -> bool:
    return one.__module__.startswith("seqlab")


def _bases(found: Classes) -> dict[str, list[str]]:
    """Concrete classes below each base class. A type `nn.Module` stands for the models."""
    bases: dict[str, list[str]] = {}
    for name, one in sorted(found.items()):
        if not inspect.isabstract(one) and abc.ABC not in one.__bases__:
            for base in one.__mro__:
                if base.__module__ != "builtins":
                    bases.setdefault(base.__name__, []).append(name)
    return bases | {"Module": [name for name in bases["Module"] if found[name].__module__.startswith("seqlab.models")]}


def _options(one: type) -> list[tuple[inspect.Parameter, str]]:
    """Optional and keyword-only parameters of a constructor, and those that its `**kwargs` passes on, with their
    help."""
    options: dict[str, tuple[inspect.Parameter, str]] = {}
    for owner in one.__mro__:
        if "__init__" in vars(owner) and _is_ours(owner):
            helps = _helps(owner)
            parameters = inspect.signature(owner).parameters.values()
            for parameter in parameters:
                is_option = parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
                if is_option and parameter.name not in {*options, "layer"}:  # a mixer's index
                    options[parameter.name] = parameter, helps.get(parameter.name, "")
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
    return [*options.values()]


def _returned(hint: str) -> set[str]:
    """Names in a type, without those of the parameters of a factory."""
    return set(re.findall(r"\w+", re.sub(r"\[\[.*?\]", "[", hint)))


def _docstring(one: type) -> str:
    return inspect.cleandoc(vars(one).get("__doc__") or "")


def _summary(one: type) -> str:
    """First sentence of a class docstring."""
    text = " ".join(_docstring(one).partition("\n\n")[0].split())
    return re.split(r"\. (?=[A-Z`\"])", text)[0].rstrip(".,:;")


def _helps(one: type) -> dict[str, str]:
    """Help text of each parameter, from the class docstring."""
    section = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", _docstring(one), re.DOTALL | re.MULTILINE)
    found: dict[str, str] = {}
    for entry in re.split(r"^    (?=\S)", section[1] if section else "", flags=re.MULTILINE):
        names, _, text = entry.partition(":")
        first, *others = [name.strip() for name in names.split(",")]
        found |= {first: " ".join(text.split()), **dict.fromkeys(others, f"see {first}")}
    return found


if __name__ == "__main__":
    main()
