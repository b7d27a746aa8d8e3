"""The bundles that exports and the C++ runtime are tested with, a browser, and the command line."""

from cli.conftest import inside
from export.conftest import _export, _shared
from runtime.conftest import _bundle, _copy
from web.browser import _opened

__all__ = ["_bundle", "_copy", "_export", "_opened", "_shared", "inside"]
