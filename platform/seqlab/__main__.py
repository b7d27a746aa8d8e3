"""`python -m seqlab`, as `torchrun -m seqlab` starts it."""

from __future__ import annotations

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # `-m` puts it there, before what is installed

from runpy import run_module

run_module("seqlab.cli.__main__", run_name=__name__)
