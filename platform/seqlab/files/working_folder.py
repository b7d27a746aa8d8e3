"""Modules of the working folder that a class path names, `--trust` included, and what these import. Nothing else
there is found: libraries ask for modules that may be missing, such as `triton` or `wandb`, and would run such a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

NAMED = "SEQLAB_NAMED_MODULES"
"""Environment variable that tells processes which are started later what was found: they unpickle its objects."""
READERS = {("jsonargparse._util", "import_object"), ("seqlab.cli.matrices", "_own_class")}
"""Functions that import a class path of the command line or of a config."""


class WorkingFolder:
    """Finds a module there for a reader of class paths, for a module that was found there, and once found for all."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a top-level module; None = there is none."""
        if path is not None or not (name in named() or _is_asked_for(sys._getframe(1))):
            return None
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # it was deleted
            return None
        spec = PathFinder.find_spec(name, [folder], target)
        # A folder is a package only where it holds code: one named `triton` may be a model repository.
        if spec is None or (spec.origin is None and not any(Path(folder, name).glob("*.py"))):
            return None
        os.environ[NAMED] = ",".join(dict.fromkeys([*named(), name]))
        return spec


def named() -> list[str]:
    """The top-level modules that were found in the working folder, by this process or the one that started it."""
    return [name for name in os.environ.get(NAMED, "").split(",") if name]


def add_working_folder() -> None:
    """Makes Python look there last."""
    if WorkingFolder not in sys.meta_path:
        sys.meta_path.append(WorkingFolder)


def _is_asked_for(frame: FrameType) -> bool:
    """True if the importing code may find modules there."""
    caller = next(_outside_importlib(frame), None)
    if caller is None:
        return False
    module = str(caller.f_globals.get("__name__"))
    return (module, caller.f_code.co_name) in READERS or module.partition(".")[0] in named()


def _outside_importlib(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("importlib", "_frozen_importlib"):
            yield frame
        frame = frame.f_back
