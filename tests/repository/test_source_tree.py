"""The import checks see what they must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from repository.source_tree import all_imports, imports_when_loaded, within

SOURCE = """
from typing import TYPE_CHECKING
import a.b
from c import d
if TYPE_CHECKING:
    import typed
else:
    import untyped
try:
    import tried
except ImportError:
    import fallback
class Class:
    import in_class
    def method(self):
        import lazy
"""


def test_what_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    loaded = {"typing.TYPE_CHECKING", "a.b", "c.d", "untyped", "tried", "fallback", "in_class"}
    assert imports_when_loaded(path) == loaded
    assert all_imports(path) == loaded | {"typed", "lazy"}


def test_relative_imports_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("from . import sibling")
    with pytest.raises(AssertionError, match="relative import"):
        all_imports(path)


def test_within_compares_whole_names() -> None:
    assert within("seqlab", "seqlab")
    assert within("seqlab.batch.TokenBatch", "seqlab.batch")
    assert not within("seqlab_data.text", "seqlab")
    assert not within("seqlab.batches", "seqlab.batch")
