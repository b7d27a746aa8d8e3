"""Ranks that torchrun starts again do not find the addresses of those that have died, and none outlives its fit."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from seqlab.cli import fit, lightning_cli
from seqlab.parallel import meet_anew, part
from trainers import quiet_trainer

LIFE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
LIFE |= {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"}


@pytest.mark.parametrize(
    ("changed", "anew"),
    [
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, True),
        ({"TORCHELASTIC_RESTART_COUNT": "0"}, False),
        ({"TORCHELASTIC_RESTART_COUNT": "2", "GROUP_WORLD_SIZE": "2"}, False),
        ({"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "False"}, False),
    ],
)
def test_each_life_has_keys_of_its_own(
    changed: dict[str, str], anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    for name, value in {**LIFE, **changed, "MASTER_PORT": str(agents.port)}.items():
        monkeypatch.setenv(name, value)
    environment: Any = TorchElasticEnvironment()
    meet_anew(quiet_trainer(tmp_path, strategy="ddp", plugins=[environment]))
    try:
        assert dist.is_initialized() == anew
        assert agents.check(["life 2/0//cpu//0/0"]) == anew  # gloo's address of rank 0
    finally:
        part()
    assert not dist.is_initialized()


def test_a_verb_ends_its_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def meet(*args: Any, **options: Any) -> None:
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)

    monkeypatch.setattr(lightning_cli, "SeqlabCLI", meet)
    assert fit.lightning("test", []) == 0
    assert not dist.is_initialized()
