"""MLflow: where runs are stored, what is stored of each, how they are found and compared. See docs/tracking.md.

Names are imported when they are used: MLflow takes two seconds and Lightning four.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.tracking.callback import DivergedError as DivergedError
    from seqlab.tracking.callback import RunTracker as RunTracker
    from seqlab.tracking.comparison import Comparison as Comparison
    from seqlab.tracking.comparison import compare as compare
    from seqlab.tracking.logger import RunLogger as RunLogger
    from seqlab.tracking.params import config_hash as config_hash
    from seqlab.tracking.runs import TrackedRun as TrackedRun
    from seqlab.tracking.runs import find_run as find_run
    from seqlab.tracking.runs import unfinished_runs as unfinished_runs
    from seqlab.tracking.server import ui as ui
    from seqlab.tracking.store import Store as Store

_MODULES = {
    "Comparison": "comparison",
    "DivergedError": "callback",
    "RunLogger": "logger",
    "RunTracker": "callback",
    "Store": "store",
    "TrackedRun": "runs",
    "compare": "comparison",
    "config_hash": "params",
    "find_run": "runs",
    "ui": "server",
    "unfinished_runs": "runs",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
