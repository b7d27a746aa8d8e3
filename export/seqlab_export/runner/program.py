"""Location of the C++ runtime's program and of the onnxruntime that it runs with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import onnxruntime

RUNNER = "seqlab-run"
BUILT = Path(__file__).parents[3] / "build" / "cpp" / RUNNER
"""Program that `make cpp` makes in a checkout."""


def find_program() -> str:
    """Path of `seqlab-run`: $SEQLAB_RUN, or the first on PATH, or the one that `make cpp` built.

    Raises:
        FileNotFoundError: there is none.
    """
    program = os.environ.get("SEQLAB_RUN") or shutil.which(RUNNER) or (str(BUILT) if BUILT.is_file() else None)
    if program is None:
        raise FileNotFoundError(
            f"{RUNNER} is neither on PATH nor in $SEQLAB_RUN; `make cpp` in a checkout makes build/cpp/{RUNNER}"
        )
    return program


def find_onnxruntime() -> str:
    """Path of the library of the installed Python package, so that Python and C++ run the same onnxruntime."""
    return str(next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")))
