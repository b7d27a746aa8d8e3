"""The bar of a long text: on a terminal, after a second, and nowhere else."""

from __future__ import annotations

import io
import sys
import time

import pytest

from seqlab_data.progress import CharsRead


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr, shown", [(Terminal(), True), (io.StringIO(), False)])
def test_it_is_shown_on_a_terminal_after_a_second(
    stderr: io.StringIO, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    clock = iter([0.0, 0.5, *[2.0] * 9])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with CharsRead("encoding text", 40_000_000) as bar:
        bar.add(10_000_000)
        assert stderr.getvalue() == ""
        bar.add(10_000_000)
        assert ("encoding text" in stderr.getvalue() and "20 of 40" in stderr.getvalue()) == shown
    assert bool(stderr.getvalue()) == shown
