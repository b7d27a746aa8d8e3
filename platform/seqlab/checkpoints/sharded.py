"""Checkpoints of a sharded model: each rank writes its shards, and an index file, sealed last, names them.

`last.ckpt` is an ordinary checkpoint whose weights and optimiser state are placeholders of the right shape that take no
memory. The values are in a folder next to it, named by its entry "shards". Renaming this one file therefore replaces a
checkpoint atomically. Shards can be read into any other layout (torch.distributed.checkpoint).
"""

from __future__ import annotations

import glob
import hashlib
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from seqlab.checkpoints.checksummed_file import save_checksummed
from seqlab.files.atomic import writing

SHARDS = "shards"


def save_shards(checkpoint: dict[str, Any], path: Path, group: dist.ProcessGroup) -> None:
    """Replaces a checkpoint after every rank has written and synced its shards. Every rank must call it.

    Raises:
        CannotWriteError: a rank could not write. The older checkpoint is not touched, and all ranks raise the same.
        ValueError: the checkpoint contains something that could not be loaded again; likewise.
    """
    from seqlab.checkpoints.shard_storage import write

    name = [f"{path.name}.{SHARDS}-{secrets.token_hex(4)}"]
    dist.broadcast_object_list(name, group=group, group_src=0)
    folder = path.with_name(name[0])
    outline, tensors = _without_memory(checkpoint)
    whole = "the one before it is whole" if path.exists() else "there was none before it"

    def seal(shards: dict[str, Any]) -> None:
        with writing(path, whole):
            save_checksummed(outline | {SHARDS: shards}, path)

    first = dist.get_rank(group) == 0
    try:
        write(tensors, folder, seal, whole, group)
    except BaseException:
        if first:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if first:
        remove_shards(path, but=folder.name)


def load_shards(
    outline: dict[str, Any], path: Path, task: nn.Module, optimizers: Sequence[Optimizer], group: dist.ProcessGroup
) -> dict[str, Any]:
    """Reads a checkpoint into a task's weights, with their current sharding. Each rank reads only what it needs, and
    every rank must call it.

    Args:
        outline: content of the file `path`, with placeholders for the tensors.
        optimizers: optimisers of the task; empty = do not read optimiser state.

    Raises:
        ValueError: a shard is missing or damaged, or a tensor has another shape. All ranks raise the same error.
    """
    checkpoint = {**outline, "state_dict": task.state_dict()}
    if not optimizers:
        outline = {**outline, "optimizer_states": []}
        checkpoint["optimizer_states"] = []
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    found: list[str | None] = [None] * size
    wrong = None
    try:
        with _refusing(path):
            for optimizer, stored in zip(optimizers, checkpoint["optimizer_states"], strict=True):
                weights = [weight for share in optimizer.param_groups for weight in share["params"]]
                for number, kept in stored["state"].items():
                    kept |= {key: _like(kept[key], weights[number]) for key in kept if isinstance(kept[key], Tensor)}
            tensors = {name: kept[key] for name, kept, key in places(checkpoint)}
            _check(outline, path, tensors, slice(rank, None, size))
    except ValueError as error:
        wrong = str(error)
    dist.all_gather_object(found, wrong, group=group)
    if all_wrong := [text for text in found if text is not None]:
        raise ValueError(all_wrong[0])
    _read(tensors, outline, path, group)
    return {name: value for name, value in checkpoint.items() if name != SHARDS}


def in_memory(outline: dict[str, Any], path: Path) -> dict[str, Any]:
    """Reads the full, unsharded checkpoint in one process.

    Raises:
        ValueError: a shard is missing or damaged.
    """
    with _refusing(path):
        held = list(places(outline))
        _check(outline, path, {name: kept[key] for name, kept, key in held}, slice(None))
        tensors = {name: torch.empty(kept[key].shape, dtype=kept[key].dtype) for name, kept, key in held}
    _read(tensors, outline, path)
    for name, kept, key in held:
        kept[key] = tensors[name]
    return {name: value for name, value in outline.items() if name != SHARDS}


def places(checkpoint: dict[str, Any]) -> Iterator[tuple[str, dict[Any, Any], Any]]:
    """Yields weights and optimiser state tensors: the name of each, and the dict and key that hold it."""
    for name in checkpoint["state_dict"]:
        yield f"state_dict.{name}", checkpoint["state_dict"], name
    for number, optimizer in enumerate(checkpoint.get("optimizer_states", [])):
        for weight, kept in optimizer["state"].items():
            for name, value in kept.items():
                if isinstance(value, Tensor):
                    yield f"optimizer_states.{number}.{weight}.{name}", kept, name


def remove_shards(path: Path, but: str | None = None) -> None:
    """Removes the shards of a checkpoint, including those left by killed processes, except for one folder."""
    for folder in path.parent.glob(f"{glob.escape(path.name)}.{SHARDS}-*"):
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)


def _without_memory(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Copy of a checkpoint with placeholders for its tensors, and the tensors by name."""
    outline = {**checkpoint, "state_dict": dict(checkpoint["state_dict"])}
    if "optimizer_states" in checkpoint:
        outline["optimizer_states"] = [
            {**optimizer, "state": {weight: dict(kept) for weight, kept in optimizer["state"].items()}}
            for optimizer in checkpoint["optimizer_states"]
        ]
    tensors = {}
    for name, kept, key in places(outline):
        tensors[name] = kept[key]
        kept[key] = torch.zeros((), dtype=kept[key].dtype).expand(kept[key].shape)
    return outline, tensors


def _like(stored: Tensor, weight: Tensor) -> Tensor:
    """An empty tensor, sharded like its weight if it has the same shape; otherwise, such as a scalar, replicated."""
    if stored.shape == weight.shape:
        return torch.empty_like(weight, dtype=stored.dtype, requires_grad=False)
    if stored.ndim and any(n not in (1, m) for n, m in zip(stored.shape, weight.shape, strict=True)):
        raise ValueError(
            f"optimiser state of shape {tuple(stored.shape)} does not fit a weight of shape {tuple(weight.shape)}"
        )
    return torch.empty(stored.shape, dtype=stored.dtype)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Converts any error caused by a checkpoint's outline into a one-sentence ValueError."""
    try:
        yield
    except _RefusedError:
        raise
    except (AttributeError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise _RefusedError(f"checkpoint {path} is damaged: {type(error).__name__}: {error}") from error


class _RefusedError(ValueError):
    """Error whose message is already complete."""


def _check(outline: dict[str, Any], path: Path, tensors: Mapping[str, Tensor], share: slice) -> None:
    """Raises ValueError if the tensors cannot be read; verifies the sha256 of the files in `share`."""
    shards, stored = outline[SHARDS], {name: kept[key] for name, kept, key in places(outline)}
    files = {name: _folder(outline, path) / Path(name).name for name in shards["files"]}
    for file in files.values():
        if not file.is_file():
            raise _RefusedError(f"checkpoint {path} is incomplete: its shard {file} is missing")
    for name in {**stored, **tensors}:
        theirs, ours = (tuple(of[name].shape) if name in of else None for of in (stored, tensors))
        if theirs != ours:
            raise _RefusedError(
                f"checkpoint {path} does not fit this model and optimiser: the shape of {name} is {theirs} there and "
                f"{ours} here"
            )
        if stored[name].layout is not torch.strided:
            raise ValueError(f"{name} has layout {stored[name].layout}, expected {torch.strided}")
    room = {name: file.stat().st_size for name, file in files.items()}
    for name, tensor in stored.items():
        _check_parts(name, tensor, shards["parts"][name], room)
    for name, left in room.items():  # a sparse file takes no disk space, but long to hash
        if left:
            raise ValueError(f"{files[name]} has {left} bytes that belong to no part")
    for name in [*files][share]:
        with files[name].open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != shards["files"][name]:
                raise ValueError(f"{files[name]} does not match its sha256; use another one")


def _check_parts(name: str, tensor: Tensor, parts: list[dict[str, Any]], room: dict[str, int]) -> None:
    """Raises ValueError unless a tensor's parts cover each of its elements exactly once and fit into their files.

    Args:
        room: unclaimed bytes of each file; reduced by this tensor's parts.
    """
    boxes = [[*zip(part["offset"], part["size"], strict=True)] for part in parts]
    for box in boxes:
        if any(not 0 <= begin <= begin + size <= n for (begin, size), n in zip(box, tensor.shape, strict=True)):
            raise ValueError(f"a part of {name} lies outside its shape")
    if sum(math.prod(part["size"]) for part in parts) != tensor.numel() or _overlap(boxes):
        raise ValueError(f"the parts of {name} do not cover it exactly once")
    for part in parts:
        begin, length = part["start"], part["length"]
        room[part["file"]] -= length
        if begin < 0 or math.prod(part["size"]) * tensor.element_size() > length or room[part["file"]] < 0:
            raise ValueError(f"a part of {name} is larger than its file")


def _overlap(boxes: list[list[tuple[int, int]]]) -> bool:
    """True if two parts overlap; a part is its (start, size) in each dimension."""
    boxes = [box for box in boxes if all(size for _, size in box)]
    if len(boxes) < 2:
        return False
    along = max(range(len(boxes[0])), key=lambda dim: len({box[dim][0] for box in boxes}))
    near: list[list[tuple[int, int]]] = []
    for box in sorted(boxes, key=lambda box: box[along][0]):
        near = [other for other in near if sum(other[along]) > box[along][0]]
        if any(all(a < c + d and c < a + b for (a, b), (c, d) in zip(box, other, strict=True)) for other in near):
            return True
        near.append(box)
    return False


def _read(
    tensors: Mapping[str, Tensor], outline: dict[str, Any], path: Path, group: dist.ProcessGroup | None = None
) -> None:
    from seqlab.checkpoints.shard_storage import read

    try:
        read(tensors, _folder(outline, path), outline[SHARDS], group)
    except Exception as error:
        raise ValueError(f"checkpoint {path} is damaged: {error}") from error


def _folder(outline: dict[str, Any], path: Path) -> Path:
    name = outline[SHARDS]["folder"]
    if Path(name).name != name or f".{SHARDS}-" not in name:
        raise ValueError(f"{name!r} is not the name of a folder of shards beside it")
    return path.with_name(name)
