"""`python -m seqlab.cli`, the same as the command `seqlab`. Spawned processes import it under another name."""

from __future__ import annotations

import os
import sys

from seqlab.cli import main

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # `-m` adds it before installed packages
    sys.exit(main())
