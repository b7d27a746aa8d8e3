"""Checkpoints of a model that is spread over processes: each writes its shards, and one file, sealed last, names them.

`last.ckpt` is an ordinary checkpoint whose weights, and what the optimiser keeps of them, are stand-ins of the right
shape, without memory; the numbers are in a folder beside it, which its "shards" name. So a rename of one file replaces
a checkpoint, whatever kills the processes. Shards are read into any other layout (torch.distributed.checkpoint).
"""

from __future__ import annotations

import glob
import hashlib
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from seqlab.sealed_file import save_sealed
from seqlab.whole_file import writing

SHARDS = "shards"


def save_shards(checkpoint: dict[str, Any], path: Path, group: dist.ProcessGroup) -> None:
    """Replaces a checkpoint once every rank has written its shards and they are synced. Every rank must call it.

    Raises:
        CannotWriteError: a rank could not write; the older checkpoint is untouched. All ranks raise the same.
        ValueError: the checkpoint holds what would not load again; as above.
    """
    from seqlab.shard_storage import write

    name = [f"{path.name}.{SHARDS}-{secrets.token_hex(4)}"]
    dist.broadcast_object_list(name, group=group, group_src=0)
    folder = path.with_name(name[0])
    outline, tensors = _without_memory(checkpoint)
    whole = "the one before it is whole" if path.exists() else "there was none before it"

    def seal(shards: dict[str, Any]) -> None:
        with writing(path, whole):
            save_sealed(outline | {SHARDS: shards}, path)

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
    """The checkpoint, read into a task's own weights and spread as they are. Each rank reads what it needs; every rank
    must call it.

    Args:
        outline: what `path` holds.
        optimizers: the task's; none = what was kept of them is not read.

    Raises:
        ValueError: a shard is missing or damaged, or a tensor has another shape. All ranks raise the same.
    """
    checkpoint = {**outline, "state_dict": task.state_dict()}
    if not optimizers:
        outline = {**outline, "optimizer_states": []}
        checkpoint["optimizer_states"] = []
    for optimizer, stored in zip(optimizers, checkpoint["optimizer_states"], strict=True):
        weights = [weight for share in optimizer.param_groups for weight in share["params"]]
        for number, kept in stored["state"].items():
            kept |= {key: _like(value, weights[number]) for key, value in kept.items() if isinstance(value, Tensor)}
    tensors = {name: kept[key] for name, kept, key in places(checkpoint)}
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    found: list[str | None] = [None] * size
    dist.all_gather_object(found, _wrong(outline, path, tensors, slice(rank, None, size)), group=group)
    if wrong := [text for text in found if text is not None]:
        raise ValueError(wrong[0])
    _read(tensors, outline, path, group)
    return {name: value for name, value in checkpoint.items() if name != SHARDS}


def in_memory(outline: dict[str, Any], path: Path) -> dict[str, Any]:
    """The whole checkpoint in this process alone, as one process saves it.

    Raises:
        ValueError: a shard is missing or damaged.
    """
    held = list(places(outline))
    if wrong := _wrong(outline, path, {name: kept[key] for name, kept, key in held}, slice(None)):
        raise ValueError(wrong)
    tensors = {name: torch.empty_like(kept[key], memory_format=torch.contiguous_format) for name, kept, key in held}
    _read(tensors, outline, path)
    for name, kept, key in held:
        kept[key] = tensors[name]
    return {name: value for name, value in outline.items() if name != SHARDS}


def places(checkpoint: dict[str, Any]) -> Iterator[tuple[str, dict[Any, Any], Any]]:
    """The tensors that are as large as the model: the name of each, and the dict and the key that hold it."""
    for name in checkpoint["state_dict"]:
        yield f"state_dict.{name}", checkpoint["state_dict"], name
    for number, optimizer in enumerate(checkpoint.get("optimizer_states", [])):
        for weight, kept in optimizer["state"].items():
            for name, value in kept.items():
                if isinstance(value, Tensor):
                    yield f"optimizer_states.{number}.{weight}.{name}", kept, name


def remove_shards(path: Path, but: str | None = None) -> None:
    """Removes the shards of a checkpoint, those that a killed process left too, but for one folder."""
    for folder in path.parent.glob(f"{glob.escape(path.name)}.{SHARDS}-*"):
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)


def _without_memory(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A copy with stand-ins for the tensors, and these by name."""
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
    """A tensor that is spread as the weight that it is kept of."""
    if stored.shape == weight.shape:
        return torch.empty_like(weight, dtype=stored.dtype, requires_grad=False)
    return torch.empty(stored.shape, dtype=stored.dtype)


def _wrong(outline: dict[str, Any], path: Path, tensors: Mapping[str, Tensor], share: slice) -> str | None:
    """What keeps these tensors from being read, if anything does; of the files a share is hashed."""
    try:
        shards, stored = outline[SHARDS], {name: kept[key] for name, kept, key in places(outline)}
        files = {name: _folder(outline, path) / Path(name).name for name in shards["files"]}
        for file in files.values():
            if not file.is_file():
                return f"checkpoint {path} is not whole: {file} is missing; its shards belong beside it"
        for name in {**stored, **tensors}:
            theirs, ours = (tuple(of[name].shape) if name in of else None for of in (stored, tensors))
            if theirs != ours:
                return f"checkpoint {path} is not of this model and optimiser: {name} is {theirs}, here {ours}"
            parts, width = shards["parts"][name], stored[name].element_size()
            if sum(math.prod(part["size"]) for part in parts) != stored[name].numel():
                return f"checkpoint {path} is damaged: the parts of {name} are not the whole of it"
            for part in parts:
                room = min(part["length"], files[part["file"]].stat().st_size - part["start"])
                if math.prod(part["size"]) * width > room:
                    return f"checkpoint {path} is damaged: a part of {name} is larger than its file"
        for name in [*files][share]:
            with files[name].open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != shards["files"][name]:
                    return f"checkpoint {path} is damaged: {files[name]} does not match its sha256; use another one"
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        return f"checkpoint {path} is damaged: {type(error).__name__}: {error}"
    return None


def _read(
    tensors: Mapping[str, Tensor], outline: dict[str, Any], path: Path, group: dist.ProcessGroup | None = None
) -> None:
    from seqlab.shard_storage import read

    try:
        read(tensors, _folder(outline, path), outline[SHARDS], group)
    except Exception as error:
        raise ValueError(f"checkpoint {path} is damaged: {error}") from error


def _folder(outline: dict[str, Any], path: Path) -> Path:
    return path.with_name(Path(outline[SHARDS]["folder"]).name)
