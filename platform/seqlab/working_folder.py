"""Modules of the working folder, as `python -m` finds them, so that a class path may name one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class WorkingFolder:
    """Finds what no other finder has. A folder is a package where it holds a Python file: libraries ask for modules
    that may be missing, such as `triton` or `wandb`, and take any folder of that name for them.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a top-level module; None = there is none."""
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # it was deleted
            return None
        spec = PathFinder.find_spec(name, [folder], target) if path is None else None
        if spec is None or spec.origin is not None or any(Path(folder, name).glob("*.py")):
            return spec
        return None


def add_working_folder() -> None:
    """Makes Python look there last."""
    if WorkingFolder not in sys.meta_path:
        sys.meta_path.append(WorkingFolder)


@contextmanager
def closed_working_folder() -> Iterator[None]:
    """Within it Python does not look there."""
    was_open = WorkingFolder in sys.meta_path
    if was_open:
        sys.meta_path.remove(WorkingFolder)
    try:
        yield
    finally:
        if was_open:
            add_working_folder()
