"""Check that an input is a regular file or a link to one. Reading a pipe may block, and a device may be endless."""

from __future__ import annotations

import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def check_regular(path: str | Path, what: str) -> None:
    """Refuses an existing path that is not a regular file. Missing files are reported when they are opened.

    Args:
        what: the file's role, such as "config".

    Raises:
        ValueError: the path is a pipe, a device, a socket or a folder.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return
    if kind in KINDS:
        raise ValueError(f"{what} {path} is {KINDS[kind]}; accepted: a regular file")
