"""`torchrun -m scale.on_ranks FOLDER CASE ...`: some of `scale.cases` on all ranks, one after the other; what each of
them finds goes to FOLDER/CASE.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any


def on_ranks(num_ranks: int, folder: Path, names: list[str], timeout: int = 600) -> dict[str, Any]:
    """Runs the cases in so many processes, and returns what each found."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={num_ranks}"]
    done = subprocess.run(
        [*torchrun, "-m", "scale.on_ranks", str(folder), *names],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}


def _main(folder: Path, names: list[str]) -> None:
    import torch

    from scale.cases import CASES
    from seqlab.config.quiet import quiet
    from seqlab.parallel import part

    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in names:
        found = CASES[name](folder)
        if os.environ["RANK"] == "0":
            (folder / f"{name}.json").write_text(json.dumps(found))
    part()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
