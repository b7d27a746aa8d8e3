"""Laws of all tasks: evaluations begin afresh, nothing teaches nothing, all can be sent, in every precision."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

import seqlab.tasks
from scale.kinds import KINDS, kinds, of_kind
from seqlab.batch import IGNORE, LabelledBatch
from seqlab.callbacks.rank_watchdog import RankWatchdog
from seqlab.config.half_precision import HalfInputs
from seqlab.config.options import check_precision
from seqlab.tasks import (
    Classification,
    LanguageModeling,
    MaskedLanguageModeling,
    MultilabelClassification,
    ScheduledSampling,
)
from seqlab.tasks.task import Task
from tasks.evaluated import trained, with_batch
from trainers import loader, quiet_trainer


def rows_of(batch: Any, count: int) -> Any:
    """A batch of the first rows alone."""
    return type(batch)(*(part if part is None else part[:count] for part in batch))


def test_every_task_is_here(files: Path) -> None:
    every = {getattr(seqlab.tasks, name) for name in seqlab.tasks.__all__}
    assert {make.func for _, make in kinds(files).values()} == {each for each in every if issubclass(each, Task)}


@pytest.mark.parametrize("name", KINDS)
def test_a_second_evaluation_scores_as_a_first_one(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is of a few rows of the validation split, the one between of the whole test split."""
    data, task = of_kind(name, files)
    for parameter in task.parameters():
        nn.init.normal_(parameter, std=0.5)
    trainer = quiet_trainer(files)
    data.prepare_data()
    data.setup("validate")
    few = loader([rows_of(next(iter(data.val_dataloader())), 3)])
    monkeypatch.setattr(data, "val_dataloader", lambda: few)
    (alone,) = trainer.validate(task, data, verbose=False)
    (other,) = trainer.test(task, data, verbose=False)
    (again,) = trainer.validate(task, data, verbose=False)
    assert again == alone
    assert alone["val/loss"] != other["test/loss"], "this test could not fail"
    assert {f"val/{score}" for score in task.shown} <= set(alone), "what progress shows is scored"


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_that_counts_for_nothing_teaches_nothing(name: str, files: Path) -> None:
    task, some = with_batch(name, files)
    assert trained(task, some) > 0
    nothing = torch.full_like(some.targets, torch.nan if some.targets.is_floating_point() else IGNORE)
    loss = trained(task, some._replace(targets=nothing))
    loss.backward()
    gradients = [weight.grad for weight in task.parameters() if weight.grad is not None]
    assert loss == 0 and gradients and not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", KINDS)
def test_a_task_can_be_sent_to_a_process_that_is_spawned(name: str, files: Path) -> None:
    _, task = of_kind(name, files)
    sent = pickle.loads(pickle.dumps(task))
    optimizer = sent.optimizer(sent.parameters(), 0.1)
    assert type(optimizer) is type(task.optimizer(task.parameters(), 0.1))
    assert all(torch.equal(weight, sent.state_dict()[name]) for name, weight in task.state_dict().items())


def own(*sizes: int, **more: int) -> nn.Module:
    return nn.Linear(1, 1)


REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (LanguageModeling, (7, 8), {"model": own, "lr": 0.0}, "got 0.0"),
    (LanguageModeling, (7, 8), {"model": own, "warmup_steps": -1}, "-1"),
    (LanguageModeling, (7, 8), {"model": own, "min_lr_ratio": 1.5}, "1.5"),
    (LanguageModeling, (7, 8), {"model": own, "z_loss": -1}, "z_loss must be at least 0, got -1"),
    (MaskedLanguageModeling, (7, 8), {"model": own, "share": 0}, "share must be above 0 and at most 1, got 0"),
    (Classification, (3, 1), {"model": own}, "needs data with a vocab_size or num_features"),
    (MultilabelClassification, (2, None, 20), {"model": own}, "classification needs a data module whose num_labels"),
    (ScheduledSampling, (), {"first": 1.5}, "from 0 to 1, got 1.5 and 0.75"),
    (ScheduledSampling, (), {"passes": "both"}, "sequential or parallel, got both"),
]


@pytest.mark.parametrize(("make", "sizes", "options", "said"), REFUSED)
def test_what_no_task_can_be_is_refused(make: Any, sizes: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(*sizes, **options)


def test_a_rank_watchdog_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(RankWatchdog(3.0))).timeout == 3.0


ON_CPU = {"bf16-mixed": torch.float32, "bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64}
"""The dtype of the weights."""


def fitted(name: str, folder: Path, precision: str, device: str = "cpu") -> tuple[Mapping[str, float], Any, set[Any]]:
    """The scores of a test after two steps, the task, and the dtypes of the losses."""
    data, task = of_kind(name, folder)
    summed, dtypes = task.loss, set()

    def loss(batch: Any) -> tuple[Tensor, Tensor]:
        total, count = summed(batch)
        dtypes.add(total.dtype)
        return total, count

    task.loss = loss
    options: dict[str, Any] = {"limit_val_batches": 1, "limit_test_batches": 2, "limit_predict_batches": 1}
    options |= {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options |= {"accelerator": device, "devices": 1, "precision": precision, "enable_model_summary": False}
    trainer = L.Trainer(max_steps=2, use_distributed_sampler=False, **options)
    trainer.fit(task, data)
    (scores,) = trainer.test(task, data, verbose=False)
    assert trainer.predict(task, data)
    return scores, task, dtypes


@pytest.mark.parametrize("name", KINDS)
def test_every_task_in_every_precision(name: str, files: Path) -> None:
    """The first steps are float32's but for rounding; losses are at least float32, and float64 where weights are."""
    scores, _, _ = fitted(name, files, "32-true")
    for precision, weights in ON_CPU.items():
        found, task, dtypes = fitted(name, files, precision)
        assert {weight.dtype for weight in task.parameters()} == {weights}
        assert dtypes == {torch.promote_types(weights, torch.float32)}, precision
        near = 1e-6 if precision == "64-true" else 0.02
        assert found["test/loss"] == pytest.approx(scores["test/loss"], rel=near), precision


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("name", KINDS)
def test_every_task_in_half_precision_on_a_device(name: str, precision: str, files: Path) -> None:
    scores, _, _ = fitted(name, files, "32-true", "gpu")
    found, _, dtypes = fitted(name, files, precision, "gpu")
    assert dtypes == {torch.float32}
    assert found["test/loss"] == pytest.approx(scores["test/loss"], rel=0.05)


def test_targets_keep_their_digits_where_inputs_are_rounded() -> None:
    third = torch.full((1, 1, 1), 1 / 3)
    batch = LabelledBatch(third, torch.ones(1, 1, dtype=torch.bool), third[:, 0, 0])
    read = HalfInputs("bf16-true").convert_input(batch)
    assert read.inputs.dtype == torch.bfloat16
    assert read.targets.dtype == torch.float32 and read.targets.item() == batch.targets.item()


@pytest.mark.filterwarnings("ignore:You passed")
@pytest.mark.parametrize("precision", [None, 32, "32", "32-true", "bf16-mixed", "64-true", "16-mixed"])
def test_a_precision_that_is_not_kept_is_refused(precision: Any) -> None:
    trainer = L.Trainer(precision=precision, accelerator="cpu", logger=False)
    if precision != "16-mixed":
        check_precision(trainer, precision)
    else:
        with pytest.raises(ValueError, match="16-mixed, which a CPU does not have; give bf16-mixed or 32-true"):
            check_precision(trainer, precision)
