"""The bundles that the C++ runtime is tested with."""

from runtime.conftest import _bundle

__all__ = ["_bundle"]
