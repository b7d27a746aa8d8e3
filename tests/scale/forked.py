"""Several ranks as children of this process, which has imported everything already."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from seqlab.config.quiet import quiet

LAUNCHED = {"TORCHELASTIC_RUN_ID": "forked", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""The environment that torchrun would set. The ranks meet in a file."""


def forked(num_ranks: int, do: Callable[[], None], timeout: float = 600) -> list[int]:
    """Calls it on each rank of a gloo group; when one dies, or time is over, the others are killed.

    Returns:
        their exit codes: 0, 1 after an exception, less than 0 after a signal.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_fork(rank, num_ranks, Path(folder) / "store", do) for rank in range(num_ranks)]
        codes: dict[int, int] = {}
        until = time.monotonic() + timeout
        while len(codes) < num_ranks:
            for pid in ranks:
                if pid not in codes and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    codes[pid] = os.waitstatus_to_exitcode(ended[1])
            if any(codes.values()) or time.monotonic() > until:
                for pid in ranks:
                    if pid not in codes:
                        os.kill(pid, signal.SIGKILL)
                        codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            time.sleep(0.005)
        return [codes[pid] for pid in ranks]


def on_ranks(num_ranks: int, do: Callable[[], Any]) -> Any:
    """Result of the first rank when each of them calls it."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "found"

        def keep() -> None:
            quiet()
            warnings.simplefilter("ignore")
            found = do()
            if dist.get_rank() == 0:
                kept.write_bytes(pickle.dumps(found))

        assert forked(num_ranks, keep) == [0] * num_ranks
        return pickle.loads(kept.read_bytes())


def _fork(rank: int, num_ranks: int, store: Path, do: Callable[[], None]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        torch.set_num_threads(1)
        ranked = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks}
        os.environ.update({name: str(number) for name, number in ranked.items()}, GROUP_RANK="0", **LAUNCHED)
        found = torch._C._distributed_c10d.FileStore(str(store), num_ranks)
        dist.init_process_group("gloo", store=found, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=600))
        do()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
