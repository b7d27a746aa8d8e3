"""`python -m seqlab.cli`: what the command `seqlab` is. A process that is spawned imports it by another name."""

from __future__ import annotations

import os
import sys

from seqlab.cli import main

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # `-m` puts it there, before what is installed
    sys.exit(main())
