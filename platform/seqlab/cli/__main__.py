"""`python -m seqlab.cli`: what the command `seqlab` is. A process that is spawned imports it by another name."""

from __future__ import annotations

import sys

from seqlab.cli import main

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working folder, which `add_working_folder` has put last
    sys.exit(main())
