"""Optimisers and learning-rate schedules by hand; what earlier configs say of them."""

from __future__ import annotations

import math
from copy import deepcopy
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


def test_linear_by_hand() -> None:
    found = factors(Linear(), 7, warmup_steps=1, total_steps=5)
    assert found == pytest.approx([1 / 2, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0])
    assert factors(Linear(min_lr_ratio=0.5), 4, warmup_steps=0, total_steps=2) == pytest.approx([1, 0.75, 0.5, 0.5])


def test_warm_up_stable_decay_by_hand() -> None:
    """2 steps of warm-up, 6 at the peak and 4 down to 0.2."""
    schedule = WarmupStableDecay(decay=0.4, min_lr_ratio=0.2)
    found = factors(schedule, 14, warmup_steps=2, total_steps=12)
    assert found == pytest.approx([1 / 3, 2 / 3, *[1] * 7, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_inverse_square_root_is_equation_3_of_vaswani() -> None:
    """d_model^-0.5 min(n^-0.5, n w^-1.5) of step n from 1 on, w = 5, as a share of its peak at n = w."""
    noam = [512**-0.5 * min(n**-0.5, n * 5**-1.5) for n in range(1, 41)]
    found = factors(InverseSquareRoot(), 40, warmup_steps=4, total_steps=None)
    assert found == pytest.approx([rate / max(noam) for rate in noam], rel=1e-14)


@pytest.mark.parametrize("schedule", [Linear(), WarmupStableDecay()])
def test_an_unknown_end_stays_at_the_peak(schedule: Schedule) -> None:
    assert factors(schedule, 3, warmup_steps=0, total_steps=None) == [1, 1, 1]


@pytest.mark.parametrize(
    "make", [lambda: Linear(min_lr_ratio=2), lambda: WarmupStableDecay(decay=-1), lambda: Cosine(min_lr_ratio=-0.1)]
)
def test_a_share_outside_0_to_1_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got"):
        make()


@pytest.mark.parametrize("total_steps", [4, 2])
def test_a_fit_that_ends_in_its_warm_up_has_a_schedule(total_steps: int) -> None:
    assert all(0 < factor <= 1 for factor in factors(Cosine(), 6, warmup_steps=4, total_steps=total_steps))


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
    ("named", "made"),
    [
        ("AdamW", AdamW),
        ("SGD", SGD),
        ("Adafactor", Adafactor),
        ("Lion", Lion),
        ("Muon", Muon),
        ("torch.optim.RMSprop", torch.optim.RMSprop),
    ],
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


def test_lion_by_hand() -> None:
    """w = w (1 - lr decay) - lr sign(0.5 m + 0.5 g), then m = 0.75 m + 0.25 g."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = Lion([{"params": [weight], "weight_decay": 0.5}], 0.5, betas=(0.5, 0.75))
    for gradient, expected in ((1.0, 0.75 - 0.5), (-4.0, 0.25 * 0.75 + 0.5)):
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
    task = task_of(optimizer={"class_path": "Muon", "init_args": {"momentum": 0.9}}, lr=0.02, schedule="Constant")
    by_hand = task_of()
    ours = {
        name for group in task.configure_optimizers()["optimizer"].param_groups[:1] for name in group["param_names"]
    }
    blocks = {name for name, weight in task.model.named_parameters() if "blocks" in name and weight.dim() == 2}
    assert ours == blocks
    named = dict(by_hand.model.named_parameters())
    muon = torch.optim.Muon(
        [named[name] for name in blocks], lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    rest = [weight for name, weight in named.items() if name not in blocks]
    groups: Any = [{"params": [p], "weight_decay": 0.1 if p.dim() == 2 else 0.0} for p in rest]
    adamw = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.99))

    class Both(SimpleNamespace):
        def step(self) -> None:
            muon.step(), adamw.step()

        def zero_grad(self) -> None:
            muon.zero_grad(), adamw.zero_grad()

    def warm_up(step: int) -> None:
        for group in (*muon.param_groups, *adamw.param_groups):
            group["lr"] = 0.02 * min(1.0, (step + 1) / 101)

    assert same(trained(task), steps_of(by_hand, Both(), warm_up))  # type: ignore[arg-type]


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


def test_muon_without_a_matrix_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="Muon has no matrix: of what is trained, each matrix has"):
        Muon([{"params": [weight], "param_names": ["head.weight"], "weight_decay": 0.0}], 0.1)


def test_a_fused_adamw_is_adamw_but_for_rounding() -> None:
    fused = {"class_path": "AdamW", "init_args": {"fused": True}}
    optimizer: Any = task_of(optimizer=fused).new_optimizer()
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]
    plain, ours = trained(task_of()), trained(task_of(optimizer=fused))
    for expected, found in zip(plain, ours, strict=True):
        torch.testing.assert_close(found, expected)


def test_an_option_of_another_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'min_lr_ratio': 0.25.*which the class chosen for it does not take"):
        task_of(**EARLIER, schedule="Constant")
    task = task_of(**EARLIER, optimizer="SGD")
    with pytest.raises(ValueError, match=r"'betas': .*which the class chosen for it does not take: .*'betas'"):
        task.configure_optimizers()
