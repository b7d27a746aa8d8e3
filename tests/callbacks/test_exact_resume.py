"""A fit that is killed and resumed equals one that is not, in every loss, logged point and weight."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from callbacks.tiny_fit import (
    BATCHES_AN_EPOCH,
    FLAGS,
    EndBefore,
    KilledError,
    TinyData,
    TinyTask,
    check_goes_on,
    diary,
    digest,
    fit,
    fit_in_process,
    fit_text,
    tiny_trainer,
)
from seqlab.callbacks.exact_resume import ExactResume


def kill(fit: Callable[..., str], at: int) -> None:
    with pytest.raises(KilledError):
        fit([EndBefore(at)])


def kill_at_each(fit: Callable[..., str], places: Iterable[int]) -> None:
    """Each life goes on from where the last was killed."""
    for at in places:
        kill(fit, at)


@pytest.mark.parametrize("name", FLAGS)
def test_kills_before_every_micro_batch(tmp_path: Path, name: str) -> None:
    check_goes_on(tmp_path, kill_at_each, [range(1, 12)], **FLAGS[name])


def test_kills_with_workers(tmp_path: Path) -> None:
    check_goes_on(tmp_path, kill, (BATCHES_AN_EPOCH + 2,), num_workers=2)


@pytest.mark.parametrize("flags", [{"accumulate_grad_batches": 2}, {"max_steps": 9, "max_epochs": -1}])
def test_kills_with_seqlabs_own_model_and_data(tmp_path: Path, flags: dict[str, Any]) -> None:
    check_goes_on(tmp_path, kill, (2, 5, 6, 7), fit_text, **flags)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_fit_that_max_steps_ended_goes_on(tmp_path: Path, accumulate: int) -> None:
    """The stop may come within an epoch or at its end, with or without a validation due."""
    flags: dict[str, Any] = {"max_epochs": -1, "accumulate_grad_batches": accumulate, "val_check_interval": 3}
    check_goes_on(tmp_path, lambda fit, stop: fit(max_steps=stop), (3, 4, 7), max_steps=9, **flags)


def test_a_checkpoint_before_the_first_step_is_where_a_fit_begins(tmp_path: Path) -> None:
    """A finder writes such a checkpoint and returns to it."""
    path = tmp_path / "again" / "checkpoints" / "last.ckpt"
    saves = LambdaCallback(on_fit_start=lambda trainer, _: trainer.save_checkpoint(path))
    assert fit(tmp_path / "whole", [saves], max_epochs=1) == fit(tmp_path / "again", max_epochs=1)


def test_validation_changes_nothing(tmp_path: Path) -> None:
    assert fit(tmp_path / "often", val_check_interval=1) == fit(tmp_path / "never", limit_val_batches=0)


def test_these_fits_can_differ(tmp_path: Path) -> None:
    """Without `ExactResume` the same fit, begun with other generators, ends with other weights."""
    weights = set()
    for seed in (0, 1):
        trainer: Any = tiny_trainer(tmp_path)
        trainer.callbacks = [c for c in trainer.callbacks if not isinstance(c, ExactResume)]
        torch.manual_seed(seed)
        trainer.fit(task := TinyTask(), datamodule=TinyData())
        weights.add(digest(task))
    assert len(weights) == 2


def draws(seed: int, epoch: int, batch: int, rank: int) -> tuple[float, float, float]:
    """First draw of each generator in a micro-batch."""
    loop = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(ready=epoch + 1)))
    share = {"rank": rank, "num_replicas": 2}
    trainer: Any = SimpleNamespace(distributed_sampler_kwargs=share, strategy=None, fit_loop=loop)
    ExactResume(seed).on_train_batch_start(trainer, L.LightningModule(), None, batch)
    return torch.rand((), dtype=torch.float64).item(), np.random.rand(), random.random()


def test_each_micro_batch_has_its_own_numbers() -> None:
    """Also where a sum of seed, epoch, batch and rank would repeat."""
    keys = list(product(range(3), repeat=4))
    seen = [draws(*key) for key in keys]
    for generator in zip(*seen, strict=True):
        assert len(set(generator)) == len(keys)
    assert seen == [draws(*key) for key in keys]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "name", "num_workers"), [(fit, "steps, validation across epochs", 0), (fit_text, "accumulation", 2)]
)
def test_sigkill_at_any_moment(tmp_path: Path, fit: Callable[..., str], name: str, num_workers: int) -> None:
    """Processes that are killed without a word, also while they save or validate.

    What was logged at the very step of a checkpoint may be lost: Lightning logs it just after.
    """
    processes = multiprocessing.get_context("spawn")
    flags = {**FLAGS[name], "num_workers": num_workers}
    whole_weights = fit(tmp_path / "whole", **flags)
    folder, moment, num_kills = tmp_path / "killed", random.Random(name), 5
    path = folder / "diary"
    for _ in range(num_kills):
        process = processes.Process(target=fit_in_process, args=(fit, folder, flags))
        process.start()
        seen = path.stat().st_size if path.exists() else 0
        while process.is_alive() and (not path.exists() or path.stat().st_size == seen):
            time.sleep(0.001)
        time.sleep(moment.uniform(0, 0.15))
        process.kill()
        process.join()
    assert fit(folder, **flags) == whole_weights
    logged, whole = diary(folder), diary(tmp_path / "whole")
    assert len(logged) >= len(whole) - num_kills
    assert {key for key in whole if key[0].startswith("batch")} <= set(logged)
    assert all(whole[key] == values for key, values in logged.items())
