"""`python -m seqlab`, as `torchrun -m seqlab` starts it."""

from __future__ import annotations

from runpy import run_module

run_module("seqlab.cli.__main__", run_name=__name__)
