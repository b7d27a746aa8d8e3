"""The bundles that exports and the C++ runtime are tested with."""

from export.conftest import _export, _shared
from runtime.conftest import _bundle

__all__ = ["_bundle", "_export", "_shared"]
