"""torchmetrics, which Lightning imports, without what it brings for metrics of text and sound and for plots."""

from __future__ import annotations

import re
import sys
from typing import Any, cast
from unittest.mock import patch

UNUSED = ("matplotlib", "scipy", "transformers")
"""Optional for torchmetrics; together they take longer to import than PyTorch."""


def import_torchmetrics() -> None:
    """Imports torchmetrics as if those of `UNUSED` that are not imported yet were not installed.

    To be called before Lightning is imported. A task of one's own that plots a metric imports matplotlib and then
    reloads `torchmetrics.utilities.plot`.
    """
    import torch  # noqa: F401  # with all that is installed
    from lightning_utilities.core.imports import RequirementCache, package_available

    absent = [name for name in UNUSED if name not in sys.modules]
    is_met = RequirementCache.__bool__

    def is_met_and_used(requirement: RequirementCache) -> bool:
        return re.split(r"\W", requirement.requirement or "")[0] not in absent and is_met(requirement)

    sys.modules.update(dict.fromkeys(absent, cast(Any, None)))  # a module that is None is not found
    try:
        with patch.object(RequirementCache, "__bool__", is_met_and_used):
            import torchmetrics  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]
        package_available.cache_clear()
