"""The balance of experts in a fit: one update for each optimiser step, whatever the step is made of."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from scale.fits import fit, language_model
from scale.kinds import told
from seqlab.nn import Block, MixtureOfExperts
from seqlab.nn.mixture_of_experts import balance
from trainers import quiet_trainer

EXPERTS = partial(Block, ffn=partial(MixtureOfExperts, num_experts=4))
MADE = partial(language_model, block=EXPERTS)


class Balance(Callback):
    """The biases after each micro-batch, and the logged largest load."""

    def __init__(self) -> None:
        self.raises: list[list[int]] = []
        self.largest: list[float] = []
        self.validated: list[list[int]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.raises.append(_raises(pl_module))
        if (largest := trainer.callback_metrics.get("train/expert_load_max")) is not None:
            self.largest.append(largest.item())

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.validated.append(_raises(pl_module))


def _raises(task: Any) -> list[int]:
    return [step for part in _mixtures(task) for step in part.raises.tolist()]


def _mixtures(task: torch.nn.Module) -> list[MixtureOfExperts]:
    return [part for part in task.modules() if isinstance(part, MixtureOfExperts)]


def fitted(files: Path, **flags: Any) -> tuple[Balance, Any]:
    data, make = MADE(files)
    torch.manual_seed(0)
    task, notes = make(**told(data), lr=1e-2), Balance()
    quiet_trainer(files, callbacks=[notes], **{"limit_val_batches": 0, "max_steps": 4, **flags}).fit(task, data)
    return notes, task


def test_a_step_moves_each_bias_once(files: Path) -> None:
    """The last of three micro-batches moves them, and no validation does."""
    notes, task = fitted(files, accumulate_grad_batches=3, limit_val_batches=2, val_check_interval=1)
    before = [0] * 8
    assert len(notes.raises) >= 9 and any(notes.raises[-1])
    for number, after in enumerate(notes.raises[:9]):
        moved = [now - then for now, then in zip(after, before, strict=True)]
        assert max(map(abs, moved)) <= (number % 3 == 2), number
        assert number % 3 != 2 or any(moved)
        before = after
    assert notes.validated[-1] == notes.raises[-1]
    assert len(notes.largest) == len(notes.raises) - 2 and all(1 <= largest <= 2 for largest in notes.largest)
    assert all(part.load == 0 for part in _mixtures(task))


def test_micro_batches_count_as_one_batch(files: Path) -> None:
    """In float64, where no choice depends on the order of sums."""
    twice = fit(files, "", made=MADE, precision="64-true", accumulate_grad_batches=2, max_epochs=1)
    once = fit(files, "", made=MADE, precision="64-true", batches=2, max_epochs=1)
    names = [name for name in once["weights"] if name.endswith("raises")]
    assert len(names) == 2 and [any(once["weights"][name]) for name in names] == [True, True]
    assert [twice["weights"][name] for name in names] == [once["weights"][name] for name in names]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_a_resumed_fit_is_the_same_bit_for_bit(files: Path, tmp_path: Path, precision: str) -> None:
    fitted = partial(fit, files, "", made=MADE, precision=precision)
    fitted(saved=tmp_path / "last.ckpt", max_steps=5)
    whole, resumed = fitted(max_steps=9), fitted(resumed=tmp_path / "last.ckpt", max_steps=9)
    assert whole["weights"] == resumed["weights"] and whole["losses"][0][5:] == resumed["losses"][0]
    assert any(max(map(abs, whole["weights"][name])) > 1 for name in whole["weights"] if name.endswith("raises"))


def test_balancing_evens_the_loads() -> None:
    """From a router that prefers one expert: its load falls from that of every token to about its share."""
    torch.manual_seed(0)
    mixture = MixtureOfExperts(8, num_experts=4, top_k=1, balance_rate=0.002)
    x = torch.randn(512, 8) + 1
    with torch.no_grad():
        mixture.router.weight[0] += 0.3
    largest = []
    for _ in range(600):
        mixture(x)
        found = balance(mixture, lambda loads: (loads,))
        assert found is not None
        largest.append(found.item())
    assert largest[0] > 3 and max(largest[-20:]) < 1.1
