"""Process groups of ranks that torchrun has restarted."""

from __future__ import annotations

import os

import lightning as L
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]


def meet_anew(trainer: L.Trainer) -> None:
    """Creates the process group of ranks that torchrun has restarted, before Lightning does.

    torchrun (2.13) uses one store across restarts. A rank that reads a dead rank's address before the new rank has
    written its own waits forever. So keys are prefixed with the restart count. Nodes count restarts separately, so this
    applies to single-node runs only.
    """
    life, strategy = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), trainer.strategy
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and os.environ.get("GROUP_WORLD_SIZE") == "1"
    if life == "0" or not shared or not isinstance(strategy, DDPStrategy | ModelParallelStrategy):
        return
    ranks, timeout = strategy.cluster_environment, strategy._timeout
    assert ranks is not None and timeout is not None
    store = TCPStore(ranks.main_address, ranks.main_port, is_master=False, timeout=timeout)
    dist.init_process_group(
        strategy._get_process_group_backend(),
        store=PrefixStore(f"life {life}", store),
        rank=ranks.global_rank(),
        world_size=ranks.world_size(),
        timeout=timeout,
        device_id=None if strategy.root_device.type == "cpu" else strategy.root_device,
    )


def part() -> None:
    """Destroys the process group, if there is one, before the interpreter shuts down.

    Gloo's threads free tensors late. A thread that frees one during shutdown is killed within a destructor, and the
    process aborts: "terminate called without an active exception".
    """
    if dist.is_initialized():
        dist.destroy_process_group()
