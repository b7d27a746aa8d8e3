"""Checkpoints in shards: whole or absent whatever kills the ranks, intact or refused, and nothing of them executed."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import shutil
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from scale.forked import forked
from seqlab.checkpoints import checksummed_file, shard_storage, sharded
from seqlab.checkpoints.checksummed_file import load_checksummed, save_checksummed
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint

WEIGHT = torch.arange(35.0).view(7, 5)


def checkpoint(step: int, dim: int = 0) -> dict[str, Any]:
    """The checkpoint of this step, its weight sharded over the ranks: the last has fewer rows or columns."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = distribute_tensor(WEIGHT + step, mesh, [Shard(dim)])
    kept = {"step": torch.tensor(float(step)), "exp_avg": weight * 2}
    one = distribute_tensor(WEIGHT[0], mesh, [Replicate()])
    return {
        "state_dict": {"weight": weight, "bias": torch.full((3,), step), "one": one},
        "optimizer_states": [{"state": {0: kept}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
        "epoch": step,
    }


def check(path: Path, step: int) -> None:
    """It is whole, and of this step."""
    found = read_checkpoint(path)
    assert found["epoch"] == step and sorted(found) == ["epoch", "optimizer_states", "state_dict"]
    assert found["state_dict"].keys() == {"weight", "bias", "one"}
    assert torch.equal(found["state_dict"]["weight"], WEIGHT + step)
    assert found["state_dict"]["bias"].tolist() == [step] * 3 and torch.equal(found["state_dict"]["one"], WEIGHT[0])
    (optimizer,) = found["optimizer_states"]
    assert optimizer["param_groups"] == [{"lr": 0.1, "params": [0]}] and optimizer["state"][0]["step"] == step
    assert torch.equal(optimizer["state"][0]["exp_avg"], 2 * (WEIGHT + step))


def save(path: Path, *steps: int, dim: int = 0) -> None:
    files = AtomicCheckpointIO()
    for step in steps:
        files.save_shards(checkpoint(step, dim), path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a checkpoint of two ranks."""
    folder = tmp_path_factory.mktemp("written")
    assert forked(2, lambda: save(folder / "last.ckpt", 1)) == [0, 0]
    return folder


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "copied") / "last.ckpt"


@pytest.fixture
def one_rank() -> Iterator[None]:
    """This process as a group of its own."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def folders(path: Path) -> list[Path]:
    return sorted(path.parent.glob("last.ckpt.shards-*"))


class Task(torch.nn.Module):
    """One whose state is that of a checkpoint."""

    def __init__(self, dim: int = 0) -> None:
        super().__init__()
        for name, tensor in checkpoint(0, dim)["state_dict"].items():
            self.register_buffer(name, tensor)


@pytest.mark.parametrize(("ranks", "dim"), [(1, 0), (2, 1), (3, 0)])
def test_any_layout_reads_what_another_wrote(path: Path, ranks: int, dim: int) -> None:
    read_data = shard_storage._Reader.read_data
    numbers: list[int] = []

    def noted(reader: Any, plan: Any, planner: Any) -> Any:
        numbers.extend(item.lengths.numel() for item in plan.items if item.dest_index.fqn == "state_dict.weight")
        return read_data(reader, plan, planner)

    def read() -> None:
        shard_storage._Reader.read_data = noted  # type: ignore[assignment,method-assign]
        task = Task(dim)
        optimizer = torch.optim.AdamW([torch.nn.Parameter(checkpoint(0, dim)["state_dict"]["weight"])])
        found = AtomicCheckpointIO().load_shards(path, task, [optimizer])
        assert found is not None and found["epoch"] == 1
        expected, moments = checkpoint(1, dim), found["optimizer_states"][0]["state"][0]
        assert isinstance(moments["exp_avg"], DTensor) and isinstance(task.weight, DTensor)
        average = expected["optimizer_states"][0]["state"][0]["exp_avg"]
        for ours, theirs in ((task.weight, expected["state_dict"]["weight"]), (moments["exp_avg"], average)):
            assert ours.placements == theirs.placements and torch.equal(ours.to_local(), theirs.to_local())
        assert sum(numbers) == task.weight.to_local().numel(), "no more is read than what this rank holds"
        assert task.bias.tolist() == [1] * 3 and moments["step"] == 1

    check(path, 1)
    assert forked(ranks, read) == [0] * ranks


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


MOMENTS: dict[str, tuple[Any, str, int]] = {
    "before its shards": (shard_storage._Writer, "write_data", 1),
    "after its shards": (sharded, "save_checksummed", 1),
    "before the rename": (os, "replace", 1),
    "after the rename": (checksummed_file, "sync_folder", 2),
    "before the old shards are removed": (sharded, "remove_shards", 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_saving(path: Path, moment: str) -> None:
    where, name, whole = MOMENTS[moment]

    def die() -> None:
        setattr(where, name, lambda *args, **kwargs: killed())
        save(path, 2)

    assert -signal.SIGKILL in forked(2, die)
    check(path, whole)
    assert forked(2, lambda: save(path, 3)) == [0, 0]
    check(path, 3)
    assert len(folders(path)) == 1 and sorted(os.listdir(path.parent)) == ["last.ckpt", folders(path)[0].name]


def test_a_full_disk_on_one_rank_is_the_same_sentence_on_all(path: Path) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def save_onto_it() -> None:
        if dist.get_rank() == 1:
            os.fsync = full  # type: ignore[assignment]
        with pytest.raises(OSError, match=r"no space left on .* while writing .*shards-.*; the one before it is whole"):
            save(path, 2)

    before = folders(path)
    assert forked(2, save_onto_it) == [0, 0]
    check(path, 1)
    assert folders(path) == before


def test_in_the_background_it_is_the_same(path: Path) -> None:
    def save_later() -> None:
        files = AtomicCheckpointIO(in_background=True)
        for step in range(2, 6):
            files.save_shards(later := checkpoint(step), path)
            later["state_dict"]["weight"].to_local().zero_()
            dist.all_reduce(torch.zeros(1000))  # as the fit does meanwhile
        files.teardown()

    assert forked(2, save_later) == [0, 0]
    check(path, 5)


def refused(path: Path, said: str) -> None:
    """Neither the whole checkpoint nor the shards of the one rank of a group can be read."""
    weight = torch.nn.Parameter(checkpoint(0)["state_dict"]["weight"])
    with pytest.raises(ValueError, match=rf"last\.ckpt is {said}"):
        AtomicCheckpointIO().load_shards(path, Task(), [torch.optim.AdamW([weight])])
    with pytest.raises(ValueError, match=rf"last\.ckpt is {said}"):
        read_checkpoint(path)


@pytest.mark.parametrize("harm", ["flipped", "cut", "missing"])
def test_what_is_damaged_is_refused_by_name(path: Path, one_rank: None, harm: str) -> None:
    (folder,) = folders(path)
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        flipped = content[:100] + bytes([content[100] ^ 1]) + content[101:]
        file.unlink()
        if harm != "missing":
            file.write_bytes(flipped if harm == "flipped" else content[:-1])
        refused(path, f"(damaged|incomplete): .*{file.name if harm != 'cut' else ''}")
        file.write_bytes(content)
        check(path, 1)
    shutil.rmtree(folder)
    refused(path, f"incomplete: .*{folder.name}")


def test_a_hole_is_not_hashed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folders(path)[0] / "__0_0.distcp"
    os.truncate(file, 2**34)
    monkeypatch.setattr(hashlib, "file_digest", None)
    with pytest.raises(ValueError, match=rf"last\.ckpt is damaged: .*{file.name} has \d+ bytes that belong to no part"):
        read_checkpoint(path)


class Evil:
    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> Any:
        return Path.touch, (self.trap,)


def test_nothing_of_it_is_executed(path: Path, tmp_path: Path) -> None:
    """A pickle where torch.distributed.checkpoint has one, and one in the place of a tensor, with the right digest."""
    trap, (folder,) = tmp_path / "executed", folders(path)
    (folder / ".metadata").write_bytes(pickle.dumps(Evil(trap)))
    check(path, 1)
    outline = load_checksummed(path)
    file = folder / "__0_0.distcp"
    zipped, packed = io.BytesIO(), io.BytesIO()
    torch.save(Evil(trap), zipped)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data/0", bytes(1 << 20))
    for content, said in (
        (pickle.dumps(Evil(trap)).ljust(1000), "File is not a zip file"),
        (zipped.getvalue(), "Weights only load failed"),
        (packed.getvalue(), "its parts are larger than the file"),
    ):
        in_it = [part for of in outline["shards"]["parts"].values() for part in of if part["file"] == file.name]
        file.write_bytes(content * len(in_it))
        outline["shards"]["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        for number, part in enumerate(in_it):
            part |= {"start": number * len(content), "length": len(content)}
        save_checksummed(outline, path)
        with pytest.raises(ValueError, match=rf"last\.ckpt is damaged: {said}"):
            read_checkpoint(path)
    assert not trap.exists()


GONE, PARTS, STATE = object(), ("shards", "parts"), ("optimizer_states", 0, "state")
OF_WEIGHT = (*PARTS, "state_dict.weight")
HARMS: list[tuple[tuple[Any, ...], Any]] = [
    (("shards", "files"), GONE),
    (("shards", "folder"), "../../.."),
    (("shards",), []),
    (OF_WEIGHT, GONE),
    (OF_WEIGHT, [[1]]),
    ((*OF_WEIGHT, 1), GONE),
    ((*OF_WEIGHT, 0, "size"), [1 << 40, 5]),
    ((*OF_WEIGHT, 0, "file"), "/etc/passwd"),
    ((*OF_WEIGHT, 0, "length"), 1 << 20),
    ((*OF_WEIGHT, 0, "start"), -1),
    ((*OF_WEIGHT, 0), "the part of another tensor"),
    *(((*OF_WEIGHT, 1, "offset"), offset) for offset in ([0, 0], [5, 0], [-1, 0], [4])),
    (("state_dict",), GONE),
    (("state_dict",), [1]),
    (("state_dict",), {"weight": 3}),
    (("state_dict", "weight"), torch.zeros(7, 5).to_sparse()),
    (("optimizer_states",), 3),
    ((*STATE, 7), {"exp_avg": WEIGHT}),
    ((*STATE, 0, "exp_avg"), torch.zeros(()).expand(1 << 50, 5)),
]


@pytest.mark.parametrize(("where", "value"), HARMS)
def test_an_outline_may_say_anything(path: Path, one_rank: None, where: tuple[Any, ...], value: Any) -> None:
    outline = inner = load_checksummed(path)
    for key in where[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[where[-1]]
    elif isinstance(value, str) and "another" in value:
        inner[where[-1]] |= outline["shards"]["parts"]["state_dict.one"][0]
    else:
        inner[where[-1]] = value
    save_checksummed(outline, path)
    refused(path, "(damaged|incomplete|does not fit this model)")


def test_one_file_takes_the_place_of_shards(path: Path) -> None:
    files = AtomicCheckpointIO()
    files.save_checkpoint(read_checkpoint(path), path)
    check(path, 1)
    assert os.listdir(path.parent) == ["last.ckpt"]
    assert files.load_shards(path, torch.nn.Linear(1, 1), []) is None
    assert forked(2, lambda: save(path, 2)) == [0, 0]
    files.remove_checkpoint(path)
    assert os.listdir(path.parent) == []


def test_a_name_of_any_characters_and_its_folder_lasts_before_anything_names_it(
    tmp_path: Path, one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(shard_storage, "sync_folder", synced.append)
    path = tmp_path / "last [2] *.ckpt"
    (other := tmp_path / "last [2] x.ckpt.shards-1").mkdir()
    save(path, 1)
    assert {*synced[:1], path, other} == {*tmp_path.iterdir()} and synced[1:] == [tmp_path]
    save(path, 2)
    check(path, 2)
    assert len(os.listdir(tmp_path)) == 3
