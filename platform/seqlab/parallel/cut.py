"""Tensor parallelism: a model is cut over ranks, layer by layer, as its blocks declare (`Mixer.cuts`)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from seqlab.parallel.vocabulary import divided_logits, whole_logits

STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "columns": ColwiseParallel,
    "rows": RowwiseParallel,
    # Heads are what others' sequences are: (B, H, T, K) is shared over its second dimension.
    "heads": partial(SequenceParallel, sequence_dim=1, use_local_output=True),
}


def check_cut(model: nn.Module, ranks: int) -> None:
    """Raises ValueError where a block of a model cannot be cut over so many ranks."""
    for module in _cuttable(model) if ranks > 1 else []:
        if hasattr(module, "cut"):
            copy(module).cut(ranks)


def cut(model: nn.Module, mesh: DeviceMesh, *, sharded: bool) -> None:
    """Cuts what says how over the ranks of a mesh; the rest each of them computes whole.

    Args:
        sharded: FSDP2 follows. Then a vocabulary that the ranks do not divide evenly stays whole: what FSDP2 makes of
            uneven parts is not where a DTensor says, so that no checkpoint of them could be written.

    Raises:
        ValueError: as of `check_cut`.
    """
    if mesh.size() == 1 or any(isinstance(weight, DTensor) for weight in model.parameters()):
        return
    for module in _cuttable(model):
        if hasattr(module, "cut"):
            module.cut(mesh.size())
        by_tokens = [name for name, how in module.cuts.items() if how == "vocabulary"]
        for name, how in module.cuts.items():
            if how != "vocabulary":
                parallelize_module(getattr(module, name), mesh, STYLES[how]())
        if sharded and any(_num_tokens(getattr(module, name)) % mesh.size() for name in by_tokens):
            continue
        for name in by_tokens:
            _cut_by_tokens(module, name, mesh)
        if by_tokens and hasattr(module, "output"):
            module.divided_output = partial(divided_logits, module.output, mesh)
            module.output = partial(whole_logits, module.output, mesh)


def _num_tokens(part: Any) -> int:
    """Of a weight, a layer or None: 0."""
    return 0 if part is None else len(getattr(part, "weight", part))


def _cut_by_tokens(module: nn.Module, name: str, mesh: DeviceMesh) -> None:
    """Divides what has something of each token, where it is there and not divided yet."""
    part = getattr(module, name)
    if isinstance(part, nn.Parameter):
        module.register_parameter(name, nn.Parameter(distribute_tensor(part.data, mesh, [Shard(0)])))
    elif isinstance(part, nn.Linear) and name == "head":
        parallelize_module(part, mesh, ColwiseParallel(use_local_output=False))
    elif isinstance(part, nn.Embedding) and not isinstance(part.weight, DTensor):
        part.register_parameter("weight", nn.Parameter(distribute_tensor(part.weight.data, mesh, [Shard(0)])))
        # Whatever it adds to its table is whole on every rank.
        distribute_module(part, mesh, input_fn=_same_on_all, output_fn=_added_up)


def _same_on_all(embedding: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> Any:
    return tuple(DTensor.from_local(tokens, mesh, [Replicate()], run_check=False) for tokens in inputs)


def _added_up(embedding: nn.Module, found: DTensor, mesh: DeviceMesh) -> Any:
    return found.full_tensor()


def _cuttable(model: nn.Module) -> list[Any]:
    """What declares `cuts`."""
    return [module for module in model.modules() if getattr(module, "cuts", None)]
