"""What all processes of a distributed fit or evaluation have, in each of them."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

ValueT = TypeVar("ValueT")


def of_all_ranks(mine: ValueT) -> list[ValueT]:
    """Each process's value, in the order of the ranks. Every process must call it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [mine]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
    return gathered
