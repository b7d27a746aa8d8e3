"""Import of modules in the working folder, only if a class path or `--trust` names them or such a module imports them.
Libraries try to import optional modules such as `triton` or `wandb`, and must not run a file of that name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

NAMED = "SEQLAB_NAMED_MODULES"
"""Environment variable with the modules found, for child processes, which unpickle their objects."""
READERS = {("jsonargparse._util", "import_object"), ("seqlab.cli.matrices", "_own_class")}
"""Functions that import a class path of the command line or of a config."""


class WorkingFolder:
    """Import finder for the working folder. A module that was found once is available to all importers."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """StateSpec of a top-level module; None = not found or not allowed."""
        if path is not None or not (name in named() or _is_asked_for(sys._getframe(1))):
            return None
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # the folder was deleted
            return None
        spec = PathFinder.find_spec(name, [folder], target)
        # A folder without code is not a package; a folder named `triton` may be a model repository.
        if spec is None or (spec.origin is None and not any(Path(folder, name).glob("*.py"))):
            return None
        os.environ[NAMED] = ",".join(dict.fromkeys([*named(), name]))
        return spec


def named() -> list[str]:
    """Top-level modules found in the working folder by this process or its parent."""
    return [name for name in os.environ.get(NAMED, "").split(",") if name]


def add_working_folder() -> None:
    """Appends the finder to Python's import path, with lowest priority."""
    if WorkingFolder not in sys.meta_path:
        sys.meta_path.append(WorkingFolder)


def _is_asked_for(frame: FrameType) -> bool:
    """True if the importing code may import from the working folder."""
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
