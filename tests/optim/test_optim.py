"""Optimisers, decay groups and the learning-rate schedule by hand; what earlier configs say of them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from seqlab.attention import Attention
from seqlab.batch import TokenBatch
from seqlab.config.configs import build_task
from seqlab.models import DecoderLM
from seqlab.optim import SGD, AdamW, Constant, Cosine, DecayMatrices, Schedule, scheduled
from seqlab.positions import Learned
from seqlab.recurrence import LSTM
from seqlab.tasks import LanguageModeling


def factors(schedule: Schedule, num_steps: int, *, warmup_steps: int, total_steps: int | None) -> list[float]:
    """The learning rate of each step, whose peak is 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=1.0)
    scheduler = scheduled(optimizer, schedule, warmup_steps=warmup_steps, total_steps=total_steps)
    rates = []
    for _ in range(num_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_warm_up_then_cosine() -> None:
    """Four steps of warm-up, then ten of half a cosine down to a tenth."""
    found = factors(Cosine(), 20, warmup_steps=4, total_steps=14)
    assert found[:4] == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5])
    assert found[4:15] == pytest.approx([0.1 + 0.9 * math.cos(math.pi * k / 20) ** 2 for k in range(11)])
    assert found[15:] == pytest.approx([0.1] * 5)


def test_no_warm_up_starts_at_the_peak() -> None:
    assert factors(Cosine(), 4, warmup_steps=0, total_steps=4) == pytest.approx([1, 0.8681981, 0.55, 0.2318019])


def test_a_constant_and_an_unknown_end_stay_at_the_peak() -> None:
    assert factors(Cosine(), 6, warmup_steps=2, total_steps=None) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])
    assert factors(Constant(), 6, warmup_steps=2, total_steps=4) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])


@pytest.mark.parametrize("total_steps", [4, 2])
def test_a_fit_that_ends_in_its_warm_up_has_a_schedule(total_steps: int) -> None:
    assert all(0 < factor <= 1 for factor in factors(Cosine(), 6, warmup_steps=4, total_steps=total_steps))


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_decay_groups(tie_embeddings: bool) -> None:
    """Matrices and embeddings decay; biases and gains do not; each parameter once, the tied embedding too."""
    model = DecoderLM(11, 16, d_model=8, mixer=[Attention, LSTM], positions=Learned, tie_embeddings=tie_embeddings)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[p] for p in group["params"]] for group in DecayMatrices(0.1)(model.named_parameters()))
    assert sorted(decayed + kept) == sorted(names.values())
    vectors = ("bias", "_norm.weight", "stack.norm.weight", "cell.bias_ih_l0", "cell.bias_hh_l0")
    assert sorted(kept) == sorted(name for name in names.values() if name.endswith(vectors))
    assert {"embedding.weight", "positions.table.weight", "stack.blocks.1.mixer.cell.weight_hh_l0"} <= set(decayed)
    assert ("head.weight" in decayed) == (not tie_embeddings)


def task_of(**options: Any) -> LanguageModeling:
    """Of a stored config, with a fit of 6 steps around it."""
    torch.manual_seed(0)
    model = {"class_path": "seqlab.models.DecoderLM", "init_args": {"d_model": 8, "num_layers": 1}}
    config = {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": model, **options}}
    task = build_task({"model": config}, {"vocab_size": 11, "seq_len": 16})
    task._trainer = SimpleNamespace(max_steps=6, max_epochs=-1)
    assert isinstance(task, LanguageModeling)
    return task


def steps_of(task: LanguageModeling, optimizer: torch.optim.Optimizer, before_step: Any) -> list[torch.Tensor]:
    """The weights after 6 steps."""
    tokens = torch.randint(11, (4, 17), generator=torch.Generator().manual_seed(1))
    for step in range(6):
        before_step(step)
        nats, count = task.loss(TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.ones(4)))
        (nats / count).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in task.model.parameters()]


def trained(task: LanguageModeling) -> list[torch.Tensor]:
    made = task.configure_optimizers()
    scheduler = made["lr_scheduler"]["scheduler"]
    return steps_of(task, made["optimizer"], lambda step: scheduler.step() if step else None)


def same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, some, others))


# As they were stored before the optimiser and the schedule could be chosen.
EARLIER = {"lr": 0.01, "weight_decay": 0.05, "betas": [0.9, 0.98], "warmup_steps": 2, "min_lr_ratio": 0.25}


def test_an_earlier_config_trains_as_it_did() -> None:
    """Bit for bit; its checkpoint has two groups in this order."""
    by_hand = task_of()
    matrices = [p for name, p in by_hand.model.named_parameters() if p.dim() > 1 and "weight" in name]
    others = [p for p in by_hand.model.parameters() if not any(p is matrix for matrix in matrices)]
    groups: Any = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98))

    def at_step(step: int) -> None:
        cosine = 0.25 + (1 - 0.25) * 0.5 * (1 + math.cos(math.pi * (step - 2) / 4))
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * ((step + 1) / 3 if step < 2 else cosine)

    earlier = task_of(**EARLIER)
    names = {parameter: name for name, parameter in earlier.model.named_parameters()}
    ours = earlier.configure_optimizers()["optimizer"].param_groups
    theirs = {parameter: name for name, parameter in by_hand.model.named_parameters()}
    assert [[names[p] for p in group["params"]] for group in ours] == [
        [theirs[p] for p in group["params"]] for group in groups
    ]
    assert same(trained(earlier), steps_of(by_hand, optimizer, at_step))


def test_what_is_beside_the_class_is_what_was_beside_the_task() -> None:
    chosen = {
        "lr": 0.01,
        "weight_decay": 0.05,
        "warmup_steps": 2,
        "optimizer": {"class_path": "AdamW", "init_args": {"betas": [0.9, 0.98]}},
        "schedule": {"class_path": "Cosine", "init_args": {"min_lr_ratio": 0.25}},
    }
    weights = trained(task_of(**EARLIER))
    assert same(weights, trained(task_of(**chosen)))
    assert not same(weights, trained(task_of(**chosen | {"optimizer": "AdamW"})))
    assert not same(weights, trained(task_of(**chosen | {"schedule": "Constant"})))


@pytest.mark.parametrize(
    ("named", "made"), [("AdamW", AdamW), ("SGD", SGD), ("torch.optim.RMSprop", torch.optim.RMSprop)]
)
def test_an_optimizer_is_named_by_its_class(named: str, made: type[Any]) -> None:
    task = task_of(optimizer=named, lr=0.02)
    task.model.embedding.weight.requires_grad_(False)
    optimizer: Any = task.configure_optimizers()["optimizer"]
    assert type(optimizer) is made and optimizer.defaults["lr"] == 0.02
    assert not any(p is task.model.embedding.weight for group in optimizer.param_groups for p in group["params"])


def test_sgd_by_hand() -> None:
    """v = m v + g, w = w - lr v, with a gradient of 1."""
    weight = nn.Parameter(torch.zeros(()))
    optimizer = SGD([{"params": [weight]}], 0.5, momentum=0.5)
    for expected in (-0.5, -0.5 - 0.75, -0.5 - 0.75 - 0.875):
        weight.grad = torch.ones(())
        optimizer.step()
        assert weight.item() == expected


def test_an_option_of_another_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'min_lr_ratio': 0.25.*which the class chosen for it does not take"):
        task_of(**EARLIER, schedule="Constant")
    task = task_of(**EARLIER, optimizer="SGD")
    with pytest.raises(ValueError, match=r"'betas': .*which the class chosen for it does not take: .*'betas'"):
        task.configure_optimizers()
