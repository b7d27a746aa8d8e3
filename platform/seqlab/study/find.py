"""Lookup of studies by name or by file."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from seqlab.study.study import Study

FORMER = {"parity": "state-tracking"}
"""Current names of studies, by their former names."""


def packaged() -> dict[str, Study]:
    """Studies of `seqlab_studies`, by name."""
    studies: dict[str, Study] = import_module("seqlab_studies.book").STUDIES
    return studies


def find_study(name: str) -> Study:
    """Finds a packaged study, or the study declared in a Python file, which is executed.

    Args:
        name: name of a study, or path of a file.

    Raises:
        ValueError: the study or file does not exist, or the file does not declare exactly one study with a new name.
    """
    studies = packaged()
    if (current := FORMER.get(name, name)) in studies:
        return studies[current]
    path = Path(name)
    if path.suffix != ".py":
        raise ValueError(f"there is no study {name}; accepted: {', '.join(studies)}, or a .py file that declares one")
    if not path.is_file():
        raise ValueError(f"there is no file {name}")
    study = _declared_in(path)
    if study.name in studies:
        raise ValueError(f"{name}: {study.name} is the name of a packaged study; give yours another")
    return study


def _declared_in(path: Path) -> Study:
    spec = spec_from_file_location(f"study_of_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # required by `Study.file`
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{path}: {error}") from error
    declared = declared_in(module)
    if len(declared) != 1:
        raise ValueError(f"{path} must declare one subclass of seqlab.study.study.Study, and declares {len(declared)}")
    return declared[0]


def declared_in(module: ModuleType) -> list[Study]:
    """Studies that a module itself declares."""
    classes = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Study)]
    return [cls() for cls in classes if cls.__module__ == module.__name__ and not inspect.isabstract(cls)]
