"""Memory limit for verifying a bundle: an unverified graph may request any amount of memory. Linux only."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqlab_export.runner.manifest import BundleError, load_manifest

_STATUS = Path("/proc/self/status")


@contextmanager
def memory_wall(folder: Path) -> Iterator[None]:
    """While entered, this process may additionally allocate 1 GiB, 64 times the size of the bundle's files and 32 times
    the state of a text: nine rows are read at once, and their values compared in float64.

    Raises:
        BundleError: the limit was exceeded, or the folder is not a bundle.
    """
    manifest = load_manifest(folder)
    if not _STATUS.is_file():
        yield
        return
    files = sum(path.stat().st_size for name in manifest.files if (path := folder / name).is_file())
    [used] = [int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith("VmData:")]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = 1024 * used + 2**30 + 64 * files + 32 * manifest.state_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (most if soft < 0 else min(soft, most), hard))
    try:
        yield
    except MemoryError as error:
        raise BundleError(f"the proof of {folder} asks for more memory than a bundle of its size needs") from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
