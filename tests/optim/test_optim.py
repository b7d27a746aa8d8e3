"""Optimisers and learning-rate schedules by hand; what earlier configs say of them."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from seqlab.batch import TokenBatch
from seqlab.config.configs import build_task
from seqlab.optim import (
    SGD,
    Adafactor,
    AdamW,
    Constant,
    Cosine,
    InverseSquareRoot,
    Linear,
    Lion,
    Muon,
    Schedule,
    WarmupStableDecay,
    scheduled,
)
from seqlab.tasks import LanguageModeling

COSINE = [0.1 + 0.9 * math.cos(math.pi * k / 20) ** 2 for k in range(11)]
# Equation 3 of Vaswani et al.: d_model^-0.5 min(n^-0.5, n w^-1.5) of step n from 1 on, w = 5.
NOAM = [512**-0.5 * min(n**-0.5, n * 5**-1.5) for n in range(1, 41)]


@pytest.mark.parametrize(
    ("schedule", "warmup_steps", "total_steps", "expected"),
    [
        (Cosine(), 4, 14, [1 / 5, 2 / 5, 3 / 5, 4 / 5, *COSINE, *[0.1] * 5]),
        (Cosine(), 0, 4, [0.1 + 0.9 * math.cos(math.pi * k / 8) ** 2 for k in range(4)]),
        (Cosine(), 2, None, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        (Constant(), 2, 4, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        (Linear(), 1, 5, [1 / 2, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0]),
        (Linear(min_lr_ratio=0.5), 0, 2, [1, 0.75, 0.5, 0.5]),
        (Linear(), 0, None, [1, 1, 1]),
        (WarmupStableDecay(decay=0.4, min_lr_ratio=0.2), 2, 12, [1 / 3, 2 / 3, *[1] * 7, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (WarmupStableDecay(), 0, None, [1, 1, 1]),
        (InverseSquareRoot(), 4, None, [rate / max(NOAM) for rate in NOAM]),
        (Cosine(), 4, 4, [1 / 5, 2 / 5, 3 / 5, 4 / 5]),  # a fit that ends in its warm-up
        (Cosine(), 4, 2, [1 / 5, 2 / 5, 3 / 5, 4 / 5]),
    ],
)
def test_schedules_by_hand(
    schedule: Schedule, warmup_steps: int, total_steps: int | None, expected: list[float]
) -> None:
    """The learning rate of each step, whose peak is 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=1.0)
    scheduler = scheduled(optimizer, schedule, warmup_steps=warmup_steps, total_steps=total_steps)
    rates = []
    for _ in range(max(len(expected), 6)):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[: len(expected)] == pytest.approx(expected, rel=1e-14)
    assert all(0 <= rate <= 1 for rate in rates)


@pytest.mark.parametrize(
    "make", [lambda: Linear(min_lr_ratio=2), lambda: WarmupStableDecay(decay=-1), lambda: Cosine(min_lr_ratio=-0.1)]
)
def test_a_share_outside_0_to_1_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got"):
        make()


def task_of(**options: Any) -> LanguageModeling:
    """The task of a stored config, in a fit of 6 steps."""
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
    """Bit for bit; its checkpoint has two groups in this order. What is now beside a class was beside the task."""
    by_hand, earlier = task_of(), task_of(**EARLIER)
    named = dict(by_hand.model.named_parameters())
    names = [[name for name in named if (named[name].dim() > 1) == matrices] for matrices in (True, False)]
    groups: Any = [{"params": [named[name] for name in some]} for some in names]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), weight_decay=0.05)
    optimizer.param_groups[1]["weight_decay"] = 0.0

    def at_step(step: int) -> None:
        cosine = 0.25 + (1 - 0.25) * 0.5 * (1 + math.cos(math.pi * (step - 2) / 4))
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * ((step + 1) / 3 if step < 2 else cosine)

    ours = earlier.configure_optimizers()["optimizer"].param_groups
    assert [group["param_names"] for group in ours] == names
    weights = trained(earlier)
    assert same(weights, steps_of(by_hand, optimizer, at_step))
    chosen = {
        **{"lr": 0.01, "weight_decay": 0.05, "warmup_steps": 2},
        "optimizer": {"class_path": "AdamW", "init_args": {"betas": [0.9, 0.98]}},
        "schedule": {"class_path": "Cosine", "init_args": {"min_lr_ratio": 0.25}},
    }
    assert same(weights, trained(task_of(**chosen)))
    assert not same(weights, trained(task_of(**chosen | {"optimizer": "AdamW"})))
    assert not same(weights, trained(task_of(**chosen | {"schedule": "Constant"})))


@pytest.mark.parametrize("made", [AdamW, SGD, Adafactor, Lion, Muon, torch.optim.RMSprop])
def test_an_optimizer_is_named_by_its_class(made: type[Any]) -> None:
    task = task_of(optimizer=f"torch.optim.{made.__name__}" if made is torch.optim.RMSprop else made.__name__, lr=0.02)
    task.model.embedding.weight.requires_grad_(False)
    optimizer: Any = task.configure_optimizers()["optimizer"]
    assert type(optimizer) is made and optimizer.defaults["lr"] == 0.02
    assert not any(p is task.model.embedding.weight for group in optimizer.param_groups for p in group["params"])


@pytest.mark.parametrize(
    ("make", "begin", "steps"),
    [
        # v = m v + g, w = w - lr v, with a gradient of 1.
        (partial(SGD, lr=0.5, momentum=0.5), 0.0, [(1.0, -0.5), (1.0, -0.5 - 0.75), (1.0, -0.5 - 0.75 - 0.875)]),
        # w = w (1 - lr decay) - lr sign(0.5 m + 0.5 g), then m = 0.75 m + 0.25 g.
        (partial(Lion, lr=0.5, betas=(0.5, 0.75)), 1.0, [(1.0, 0.75 - 0.5), (-4.0, 0.25 * 0.75 + 0.5)]),
    ],
)
def test_sgd_and_lion_by_hand(make: Any, begin: float, steps: list[tuple[float, float]]) -> None:
    weight = nn.Parameter(torch.tensor(begin))
    optimizer = make([{"params": [weight], "weight_decay": 0.5 * begin}])
    for gradient, expected in steps:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        assert weight.item() == expected


def test_adafactor_keeps_a_row_and_a_column_of_a_matrix() -> None:
    """The paper's algorithm 4, without a first moment, at its first step: the decay rate is 0."""
    torch.manual_seed(0)
    weight, gradient = torch.randn(3, 5), torch.randn(3, 5)
    parameter = nn.Parameter(weight.clone())
    optimizer = Adafactor([{"params": [parameter], "weight_decay": 0.0}], 0.01)
    parameter.grad = gradient
    optimizer.step()
    rows, columns = gradient.square().mean(1, keepdim=True), gradient.square().mean(0, keepdim=True)
    update = gradient / (rows * columns / rows.mean()).sqrt()
    update /= max(1.0, update.square().mean().sqrt().item())
    expected = weight - 0.01 * weight.square().mean().sqrt() * update
    torch.testing.assert_close(parameter.detach(), expected)
    assert {tuple(kept.shape) for kept in optimizer.state[parameter].values()} == {(), (3, 1), (1, 5)}


def test_muon_is_torchs_beside_adamw() -> None:
    """The matrices of blocks are Muon's; vectors, and what has a row for each token, are AdamW's."""
    muon = {"class_path": "Muon", "init_args": {"momentum": 0.9}}
    task, by_hand = task_of(optimizer=muon, lr=0.02, schedule="Constant"), task_of()
    named = dict(by_hand.model.named_parameters())
    blocks = [name for name, weight in named.items() if "blocks" in name and weight.dim() == 2]
    assert task.configure_optimizers()["optimizer"].param_groups[0]["param_names"] == blocks
    options: Any = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9, "adjust_lr_fn": "match_rms_adamw"}
    rest = [weight for name, weight in named.items() if name not in blocks]
    groups: Any = [{"params": [weight], "weight_decay": 0.1 if weight.dim() == 2 else 0.0} for weight in rest]
    both = [torch.optim.Muon([named[name] for name in blocks], **options)]
    both.append(torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.99)))  # type: ignore[arg-type]
    stepped: Any = SimpleNamespace(
        step=lambda: [one.step() for one in both], zero_grad=lambda: [one.zero_grad() for one in both]
    )

    def warm_up(step: int) -> None:
        for group in (*both[0].param_groups, *both[1].param_groups):
            group["lr"] = 0.02 * min(1.0, (step + 1) / 101)

    assert same(trained(task), steps_of(by_hand, stepped, warm_up))


def test_muon_goes_on_from_what_it_stored() -> None:
    """A state dict replaces the groups and the state, which its two optimisers share with it."""
    first, second = task_of(optimizer="Muon"), task_of(optimizer="Muon")
    begun, continued = (task.configure_optimizers()["optimizer"] for task in (first, second))
    steps_of(first, begun, lambda _: None)
    assert len(begun.state) == len(list(first.model.parameters()))
    second.load_state_dict(first.state_dict())
    continued.load_state_dict(deepcopy(begun.state_dict()))
    assert same(steps_of(second, continued, lambda _: None), steps_of(first, begun, lambda _: None))


def test_muon_leaves_what_is_no_matrix_to_adamw() -> None:
    """Two dimensions alone make none: gains by head, decay rates, one row."""
    names = ["mixer.a_log", "mixer.bias", "mixer.head_norm.weight", "mixer.dt_weight", "mixer.q_proj.weight"]
    shapes = [(4, 4), (4, 4), (4, 4), (4, 1), (4, 4)]
    weights = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    muon, *others = Muon([{"params": weights, "param_names": names, "weight_decay": 0.0}], 0.1).param_groups
    assert muon["param_names"] == ["mixer.q_proj.weight"] and others[0]["param_names"] == names[:-1]
    with pytest.raises(
        ValueError, match="Muon has no matrix to optimise: the name of every trained matrix matches others = "
    ):
        Muon([{"params": weights[:1], "param_names": ["head.weight"], "weight_decay": 0.0}], 0.1)


def test_adamw_may_be_fused() -> None:
    fused = {"class_path": "AdamW", "init_args": {"fused": True}}
    optimizer: Any = task_of(optimizer=fused).new_optimizer()
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]


def test_an_option_of_another_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'min_lr_ratio': 0.25.*which the chosen class does not accept"):
        task_of(**EARLIER, schedule="Constant")
    task = task_of(**EARLIER, optimizer="SGD")
    with pytest.raises(ValueError, match=r"'betas': .*which the chosen class does not accept: .*'betas'"):
        task.configure_optimizers()
