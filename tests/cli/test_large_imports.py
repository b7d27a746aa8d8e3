"""The garbage collector rests during imports, and a process ends without a scan of what it has imported."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from seqlab.files.large_imports import uncollected
from seqlab.tracking.store import Store

END = """
import atexit, gc, sys
from seqlab.files.large_imports import uncollected

class Log:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("closed")

atexit.register(lambda: print(gc.get_freeze_count(), gc.isenabled()))  # runs after those that are registered below
with uncollected(first=True):
    import json.tool
print(gc.get_freeze_count(), gc.isenabled())
more = [[] for _ in range(20_000)]
Log()
"""


def test_nothing_is_collected_while_a_store_opens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be opened"), Store(tmp_path)._opening():
        assert not gc.isenabled()
        raise ValueError("broken")
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_process_deletes_its_garbage_and_leaves_the_rest() -> None:
    done = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True, check=True)
    first, garbage, last = done.stdout.splitlines()
    assert garbage == "closed"
    assert first.endswith(" True")
    assert 0 < int(first.split()[0]) < int(last.split()[0]) - 10_000
