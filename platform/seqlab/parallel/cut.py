"""Tensor parallelism: shards a model over ranks, layer by layer, by the plans its modules declare (`Mixer.cuts`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    # The head dimension takes the role of the sequence: (B, H, T, K) is sharded over its second dimension.
    "heads": partial(SequenceParallel, sequence_dim=1, use_local_output=True),
}


def check_cut(model: nn.Module, ranks: int) -> None:
    """Raises ValueError if a module of a model cannot be sharded over `ranks` ranks."""
    for module in _cuttable(model) if ranks > 1 else []:
        if hasattr(module, "cut"):
            copy(module).cut(ranks)


def cut(model: nn.Module, mesh: DeviceMesh, *, sharded: int | None = None) -> None:
    """Shards the modules that declare `cuts` over the ranks of a mesh; all others are replicated.

    Args:
        sharded: number of ranks over which FSDP2 then shards the weights (`shard_fully`); None = no FSDP2. A vocabulary
            that `mesh` does not divide stays replicated if these ranks do not divide the width of its vectors either.

    Raises:
        ValueError: as in `check_cut`.
    """
    if mesh.size() == 1 or any(isinstance(weight, DTensor) for weight in model.parameters()):
        return
    for module in _cuttable(model):
        if hasattr(module, "cut"):
            module.cut(mesh.size())
        for name, how in module.cuts.items():
            if how != "vocabulary":
                parallelize_module(getattr(module, name), mesh, STYLES[how]())
    _cut_vocabulary(model, mesh, sharded)


def _cut_vocabulary(model: nn.Module, mesh: DeviceMesh, sharded: int | None) -> None:
    found = dict.fromkeys(where for module in _cuttable(model) for where in _of_tokens(module))
    weights = [getattr(*where) for where in found]
    uneven = (weight for weight in weights if weight.dim() > 1 and len(weight) % mesh.size())
    if sharded and any(weight.shape[1] % sharded for weight in uneven):
        return
    for (owner, name), weight in zip(found, weights, strict=True):
        # FSDP2 could shard a bias only by tokens, and no checkpoint can be written of uneven shards.
        how = Replicate() if sharded and weight.dim() == 1 else Shard(0)
        divided = distribute_tensor(weight.data, mesh, [how])
        owner.register_parameter(name, nn.Parameter(divided, requires_grad=weight.requires_grad))
        if isinstance(owner, nn.Embedding):
            # Anything the embedding adds to its table is replicated.
            distribute_module(owner, mesh, input_fn=_same_on_all, output_fn=_added_up)
    for module in _cuttable(model):
        if "vocabulary" in module.cuts.values() and hasattr(module, "output"):
            module.divided_output = partial(divided_logits, module.output, mesh)
            module.output = partial(whole_logits, module.output, mesh)


def _of_tokens(module: Any) -> Iterator[tuple[nn.Module, str]]:
    """Weights that are sharded by tokens, each as its module and its name there."""
    for name in (name for name, how in module.cuts.items() if how == "vocabulary"):
        part = getattr(module, name)
        if isinstance(part, nn.Parameter):
            yield module, name
        elif isinstance(part, nn.Embedding):
            yield part, "weight"
        elif isinstance(part, nn.Linear) and name == "head":
            yield from ((part, own) for own, _ in part.named_parameters())


def _same_on_all(embedding: nn.Module, inputs: tuple[Tensor, ...], mesh: DeviceMesh) -> Any:
    return tuple(DTensor.from_local(tokens, mesh, [Replicate()], run_check=False) for tokens in inputs)


def _added_up(embedding: nn.Module, found: DTensor, mesh: DeviceMesh) -> Any:
    return found.full_tensor()


def _cuttable(model: nn.Module) -> list[Any]:
    """Modules that declare `cuts`."""
    return [module for module in model.modules() if getattr(module, "cuts", None)]
