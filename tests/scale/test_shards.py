"""Checkpoints in shards: whole or absent whatever kills the ranks, intact or refused, and nothing of them executed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import signal
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from scale.forked import forked
from seqlab import sealed_file, shard_storage, sharded_checkpoint
from seqlab.attention import Attention
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from seqlab.models import DecoderLM
from seqlab.parallel.cut import cut
from seqlab.parallel.fully_sharded import shard_fully
from seqlab.positions import NoPositions
from seqlab.sealed_file import load_sealed, save_sealed

WEIGHT = torch.arange(35.0).view(7, 5)


def checkpoint(step: int, dim: int = 0) -> dict[str, Any]:
    """The checkpoint of this step, its weight sharded over the ranks: the last has fewer rows or columns."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = distribute_tensor(WEIGHT + step, mesh, [Shard(dim)])
    kept = {"step": torch.tensor(float(step)), "exp_avg": weight * 2}
    return {
        "state_dict": {
            "weight": weight,
            "bias": torch.full((3,), step),
            "one": distribute_tensor(WEIGHT[0], mesh, [Replicate()]),
        },
        "optimizer_states": [{"state": {0: kept}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
        "epoch": step,
    }


def check(path: Path, *steps: int) -> None:
    """It is whole, and of one of these steps."""
    found = read_checkpoint(path)
    step = found["epoch"]
    assert step in steps and sorted(found) == ["epoch", "optimizer_states", "state_dict"]
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    assert forked(2, lambda: save(tmp_path / "last.ckpt", 1)) == [0, 0]
    return tmp_path / "last.ckpt"


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
        for ours, theirs in (
            (task.weight, expected["state_dict"]["weight"]),
            (moments["exp_avg"], expected["optimizer_states"][0]["state"][0]["exp_avg"]),
        ):
            assert ours.placements == theirs.placements and torch.equal(ours.to_local(), theirs.to_local())
        assert sum(numbers) == task.weight.to_local().numel(), "no more is read than what this rank holds"
        assert task.bias.tolist() == [1] * 3 and moments["step"] == 1

    check(path, 1)
    assert forked(ranks, read) == [0] * ranks


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


MOMENTS: dict[str, tuple[Any, str, int]] = {
    "before its shards": (shard_storage._Writer, "write_data", 1),
    "after its shards": (sharded_checkpoint, "save_sealed", 1),
    "before the rename": (os, "replace", 1),
    "after the rename": (sealed_file, "sync_folder", 2),
    "before the old shards are removed": (sharded_checkpoint, "remove_shards", 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_saving(path: Path, moment: str) -> None:
    where, name, whole = MOMENTS[moment]

    def die() -> None:
        setattr(where, name, lambda *args, **kwargs: killed())
        save(path, 2)

    codes = forked(2, die)
    assert -signal.SIGKILL in codes
    check(path, whole)
    assert forked(2, lambda: save(path, 3)) == [0, 0]
    check(path, 3)
    assert len(folders(path)) == 1 and sorted(os.listdir(path.parent)) == ["last.ckpt", folders(path)[0].name]


@pytest.mark.slow
def test_killed_fifty_times_while_saving(path: Path) -> None:
    def save_for_ever(first: int) -> None:
        for step in range(first, first + 100_000):
            save(path, step)

    last = 1
    for _ in range(50):
        delay = random.uniform(0.2, 1.0)
        assert -signal.SIGKILL in forked(2, partial(save_for_ever, last), timeout=delay)
        step = load_sealed(path)["epoch"]
        check(path, *range(last, step + 1))
        last = step
    assert last > 100


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
            later = checkpoint(step)
            files.save_shards(later, path)
            later["state_dict"]["weight"].to_local().zero_()
            dist.all_reduce(torch.zeros(1000))  # as the fit does meanwhile
        files.teardown()

    assert forked(2, save_later) == [0, 0]
    check(path, 5)


@pytest.mark.parametrize("harm", ["flipped", "cut", "missing", "folder missing"])
def test_what_is_damaged_is_refused_by_name(path: Path, harm: str) -> None:
    for file in sorted(folders(path)[0].iterdir()):
        content = file.read_bytes()
        if harm == "flipped":
            file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        elif harm == "cut":
            file.write_bytes(content[:-1])
        elif harm == "missing":
            file.unlink()
        else:
            shutil.rmtree(file.parent)
        with pytest.raises(
            ValueError, match=rf"last\.ckpt is (damaged|not whole): .*{file.name if harm[0] != 'c' else ''}"
        ):
            read_checkpoint(path)

        def read() -> None:
            with pytest.raises(ValueError, match=r"last\.ckpt is damaged"):
                AtomicCheckpointIO().load_shards(path, Task(), [])

        assert harm != "flipped" or forked(2, read) == [0, 0]
        if harm == "folder missing":
            return
        file.write_bytes(content)
        check(path, 1)


def test_a_hole_is_not_hashed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folders(path)[0] / "__0_0.distcp"
    os.truncate(file, 2**34)
    monkeypatch.setattr(hashlib, "file_digest", None)
    with pytest.raises(ValueError, match=rf"last\.ckpt is damaged: .*{file.name} has \d+ bytes more than its parts"):
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
    outline = load_sealed(path)
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
        save_sealed(outline, path)
        with pytest.raises(ValueError, match=rf"last\.ckpt is damaged: {said}"):
            read_checkpoint(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    "harm",
    [
        lambda shards: shards.pop("files"),
        lambda shards: shards.update(folder="../../.."),
        lambda shards: shards["parts"]["state_dict.weight"].pop(),
        lambda shards: shards["parts"]["state_dict.weight"][0].update(size=[1 << 40, 5]),
        lambda shards: shards["parts"]["state_dict.weight"][0].update(file="/etc/passwd"),
        lambda shards: shards["parts"].pop("state_dict.weight"),
        lambda shards: shards["parts"]["state_dict.weight"][1].update(offset=[0, 0]),
        lambda shards: shards["parts"]["state_dict.weight"][1].update(offset=[5, 0]),
        lambda shards: shards["parts"]["state_dict.weight"][1].update(offset=[-1, 0]),
        lambda shards: shards["parts"]["state_dict.weight"][1].update(offset=[4]),
        lambda shards: shards["parts"]["state_dict.weight"][0].update(shards["parts"]["state_dict.one"][0]),
        lambda shards: shards["parts"]["state_dict.weight"][0].update(length=1 << 20),
        lambda shards: shards["parts"]["state_dict.weight"][0].update(start=-1),
        lambda shards: shards["parts"].update({"state_dict.weight": json.loads("[[1]]")}),
    ],
)
def test_what_says_where_the_shards_are_may_be_anything(path: Path, harm: Callable[[dict[str, Any]], Any]) -> None:
    outline = load_sealed(path)
    harm(outline["shards"])
    save_sealed(outline, path)
    with pytest.raises(ValueError, match=r"last\.ckpt is (damaged|not whole)"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "harm",
    [
        lambda outline: outline.pop("state_dict"),
        lambda outline: outline.update(state_dict=[1]),
        lambda outline: outline.update(state_dict={"weight": 3}),
        lambda outline: outline.update(optimizer_states=3),
        lambda outline: outline["optimizer_states"][0]["state"].update({7: {"exp_avg": WEIGHT}}),
        lambda outline: outline["optimizer_states"][0]["state"][0].update(exp_avg=torch.zeros(()).expand(1 << 50, 5)),
        lambda outline: outline["state_dict"].update(weight=torch.zeros(7, 5).to_sparse()),
        lambda outline: outline.update(shards=[]),
    ],
)
def test_its_outline_may_be_anything(path: Path, harm: Callable[[dict[str, Any]], Any]) -> None:
    outline = load_sealed(path)
    harm(outline)
    save_sealed(outline, path)

    def read() -> None:
        weight = torch.nn.Parameter(checkpoint(0)["state_dict"]["weight"])
        with pytest.raises(ValueError, match=r"last\.ckpt is (damaged|not of this model)"):
            AtomicCheckpointIO().load_shards(path, Task(), [torch.optim.AdamW([weight])])

    with pytest.raises(ValueError, match=r"last\.ckpt is (damaged|not of this model)"):
        read_checkpoint(path)
    assert forked(1, read) == [0]


def test_its_folder_lasts_before_anything_names_it(tmp_path: Path) -> None:
    def save_noting() -> None:
        synced: list[Path] = []
        shard_storage.sync_folder = synced.append  # type: ignore[assignment, attr-defined]
        save(tmp_path / "last.ckpt", 1)
        assert synced == [*folders(tmp_path / "last.ckpt"), tmp_path]

    assert forked(1, save_noting) == [0]


def test_one_file_takes_the_place_of_shards(path: Path) -> None:
    files = AtomicCheckpointIO()
    files.save_checkpoint(read_checkpoint(path), path)
    check(path, 1)
    assert os.listdir(path.parent) == ["last.ckpt"]
    assert files.load_shards(path, torch.nn.Linear(1, 1), []) is None
    assert forked(2, lambda: save(path, 2)) == [0, 0]
    files.remove_checkpoint(path)
    assert os.listdir(path.parent) == []


def test_a_name_of_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "last [2] *.ckpt"
    (tmp_path / "last [2] x.ckpt.shards-1").mkdir()
    assert forked(1, lambda: save(path, 1, 2)) == [0]
    check(path, 2)
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("vocab_size", "width", "divided"), [(65, 8, True), (66, 8, True), (65, 6, False)])
def test_ranks_that_share_layers_and_weights_write_any_vocabulary(
    tmp_path: Path, vocab_size: int, width: int, divided: bool
) -> None:
    """65 is odd: by rows FSDP2 over 4 ranks would not hold the parts of 33 and 32 tokens where their DTensors say."""
    torch.manual_seed(0)
    heads = partial(Attention, num_heads=2)
    model = DecoderLM(vocab_size, 8, mixer=heads, positions=NoPositions, d_model=width, num_layers=1)
    tokens, weights = torch.arange(8)[None], {name: value.clone() for name, value in model.state_dict().items()}
    logits = model(tokens)[0].detach()

    def spread_and_save() -> None:
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
        cut(model, mesh["tensor"], sharded=4)
        assert isinstance(model.embedding.weight, DTensor) == divided
        shard_fully(model, mesh["data"], "32-true")
        with torch.no_grad():
            assert torch.allclose(model(tokens)[0], logits, atol=1e-5)
        AtomicCheckpointIO().save_shards({"state_dict": model.state_dict()}, tmp_path / "last.ckpt")

    assert forked(8, spread_and_save) == [0] * 8
    found = read_checkpoint(tmp_path / "last.ckpt")["state_dict"]
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)
