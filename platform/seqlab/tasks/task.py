"""Base of every task: its model, training and scoring."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from numbers import Integral
from typing import Any, TypeVar

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import IGNORE
from seqlab.optim import (
    AdamW,
    Cosine,
    DecayMatrices,
    Groups,
    Optimizer,
    ParameterGroups,
    Schedule,
    scheduled,
    trained_alike,
)
from seqlab.parallel import DataParallel, SpreadStrategy, add_up, clip_by_norm, clip_by_value, data_parallel
from seqlab.tasks.metrics import EACH, RANGES

ValueT = TypeVar("ValueT")


class Task(L.LightningModule):
    """A model, its optimiser and the schedule of its learning rate after a linear warm-up. A subclass says its `loss`,
    its `scores`, what `evaluate` gives them of a batch, and its `predictions`.

    Args:
        lr: peak learning rate.
        weight_decay: of the parameters that `groups` decays.
        warmup_steps: optimiser steps of linear warm-up.
        optimizer: called with the groups of parameters and lr.
        schedule: of the learning rate after the warm-up.
        groups: which parameters are trained alike; called with weight_decay.
        betas: as `optimizer` takes them; None = its own.
        min_lr_ratio: as `schedule` takes it; None = its own.
        each_length: whether scores by length or position are of each single one, and not of 1 to 8, 9 to 16 and so on.

    Raises:
        ValueError: an option is out of its range, or the optimiser or the schedule has none of this name.

    Attributes:
        chooses_one: whether the logits at a place are of one choice among them, as a token or a class is.
        shown: the scores that the progress of a fit shows.
        score_names: of all that `log_scores` may log, with * for any bucket of lengths. A class without its own, not
            its base's, does not say: a subclass may log more.
        buckets: of the lengths that scores are given by.
        scored: the metrics of the evaluation that runs.
        tokens_per_step: what the losses of a batch are divided by where a step has several, and it is not known yet
            how many losses (`TokensPerStep`); None = by the number of the batch's own.
        begins_step: whether a batch is the first of its step.
        num_tokens: (), real tokens or frames that all ranks have read of the last training batch.
    """

    chooses_one = True
    shown: tuple[str, ...] = ("loss",)
    score_names: tuple[str, ...] = ()
    tokens_per_step: int | None = None
    begins_step = True

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        warmup_steps: int = 100,
        optimizer: Callable[[Groups, float], Optimizer] = AdamW,
        schedule: Callable[[], Schedule] = Cosine,
        groups: Callable[[float], ParameterGroups] = DecayMatrices,
        betas: tuple[float, float] | None = None,
        min_lr_ratio: float | None = None,
        each_length: bool = False,
    ) -> None:
        super().__init__()
        if lr <= 0 or warmup_steps < 0:
            raise ValueError(f"lr must be positive and warmup_steps at least 0, got {lr} and {warmup_steps}")
        self.model = model
        self.lr = lr
        self.warmup_steps = warmup_steps
        self.optimizer = _with(optimizer, betas=betas)
        self.schedule = _with(schedule, min_lr_ratio=min_lr_ratio)()
        self.groups = groups(weight_decay)
        self.buckets = EACH if each_length else RANGES
        self.scored: dict[str, Metric] = {}
        self.num_tokens = torch.zeros(())

    def configure_model(self) -> None:
        """Hands the model to a strategy that spreads it over processes."""
        if isinstance(self.trainer.strategy, SpreadStrategy):
            self.trainer.strategy.spread(self.model)

    @abstractmethod
    def loss(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The sum of a training batch's losses and how many they are, both (); their quotient is trained on."""

    @abstractmethod
    def scores(self, split: str) -> dict[str, Metric]:
        """New metrics for "val" or "test", by name. One that computes several numbers names each itself."""

    @abstractmethod
    def evaluate(self, batch: Any) -> dict[str, Any]:
        """The update of each score from a batch: one value, or a tuple of several."""

    @abstractmethod
    def predictions(self, batch: Any) -> list[dict[str, Any]]:
        """The model's predictions for each row of a batch, by name and in values that JSON has."""

    def log_scores(self, split: str, found: dict[str, Any]) -> None:
        """Logs the scores of all batches together, by name."""
        names = vars(type(self)).get("score_names", ("*",))
        assert all(any(fnmatchcase(name, one) for one in names) for name in found), f"{[*found]} are not all in {names}"
        for name, value in found.items():
            self.log(f"{split}/{name}", value.float(), prog_bar=name in self.shown)

    def setup(self, stage: str) -> None:
        # Lightning restores a checkpoint before it converts the weights, and would round those of float64.
        self.trainer.precision_plugin.convert_module(self)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        total, count = self.loss(batch)
        ranks = DataParallel() if self._trainer is None else data_parallel(self._trainer)
        read = getattr(batch, "num_tokens", torch.zeros_like(count))
        totals, counts, self.num_tokens = ranks.sum(total.detach(), count, read)
        self.num_counted = counts
        # A rank that has nothing left in an epoch's last batch is given one of which nothing counts.
        counts = counts.clamp(min=1)
        self.log("train/loss", totals / counts, prog_bar=True)
        # The ranks' gradients are averaged, and each token's counts alike, whichever rank has it.
        return total * ranks.size / (self.tokens_per_step or counts)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        if self.begins_step:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips however the gradients are spread over processes, and logs their norm where it is what is clipped.

        Raises:
            ValueError: the optimiser itself divides the gradients by the scale that they have in 16-mixed.
        """
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        add_up(weights)
        if not gradient_clip_val:
            return
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        if scaled and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise ValueError(
                f"{type(optimizer).__name__} with fused: true cannot be clipped in 16-mixed; leave fused or "
                "trainer.gradient_clip_val out"
            )
        if gradient_clip_algorithm == "value":
            clip_by_value(weights, gradient_clip_val)
        else:
            self.log("train/grad_norm", clip_by_norm(weights, gradient_clip_val))

    def on_validation_epoch_start(self) -> None:
        self._begin("val")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        for name, values in self.evaluate(batch).items():
            self.scored[name].update(*(values if isinstance(values, tuple) else (values,)))

    def on_validation_epoch_end(self) -> None:
        self._log("val")

    def on_test_epoch_start(self) -> None:
        self._begin("test")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        self._log("test")

    def _begin(self, split: str) -> None:
        # New ones for each evaluation: none begins with what another has added, and no precision casts their sums.
        self.scored = {name: metric.to(self.device) for name, metric in self.scores(split).items()}
        for metric in self.scored.values():
            metric.process_group = data_parallel(self.trainer).group

    def _log(self, split: str) -> None:
        found: dict[str, Any] = {}
        for name, metric in self.scored.items():
            value = metric.compute()
            found |= value if isinstance(value, dict) else {name: value}
        self.log_scores(split, found)
        self.scored = {}

    def predict_step(self, batch: Any, batch_idx: int) -> list[dict[str, Any]]:
        """`predictions` of the rows that count, each with its place in the split as "row", where that is known."""
        said = self.predictions(batch)
        if batch.rows is None:
            return said
        return [{"row": row, **one} for row, one in zip(batch.rows.tolist(), said, strict=True) if row >= 0]

    def new_optimizer(self) -> Optimizer:
        """A new optimiser of the parameters that are trained.

        Raises:
            ValueError: the optimiser, or what groups the parameters, does not fit the model.
        """
        trained = {weight: name for name, weight in self.model.named_parameters() if weight.requires_grad}
        groups = self.groups([(name, weight) for weight, name in trained.items()])
        optimizer: Optimizer = self.optimizer(trained_alike(groups, trained, self.lr), self.lr)
        return optimizer

    def configure_optimizers(self) -> Any:
        optimizer: Any = self.new_optimizer()
        scheduler = scheduled(optimizer, self.schedule, warmup_steps=self.warmup_steps, total_steps=self._total_steps())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _total_steps(self) -> int | None:
        """Optimiser steps of the whole fit; None where nothing but time ends it.

        Lightning's `estimated_stepping_batches` would build the data loaders before their state is restored.
        """
        trainer = self.trainer
        max_steps = None if trainer.max_steps == -1 else trainer.max_steps
        if trainer.max_epochs in (None, -1) or trainer.datamodule is None:  # type: ignore[attr-defined]
            return max_steps
        num_batches = len(trainer.datamodule.train_dataloader())  # type: ignore[attr-defined]
        limit = trainer.limit_train_batches
        num_batches = min(num_batches, limit) if isinstance(limit, int) else int(num_batches * limit)
        assert trainer.max_epochs is not None
        in_epochs = trainer.max_epochs * math.ceil(num_batches / trainer.accumulate_grad_batches)
        return in_epochs if max_steps is None else min(in_epochs, max_steps)


def _with(factory: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A factory with those of its options that are given. Strategies that spawn processes send it to them."""
    return partial(_made, factory, {name: value for name, value in options.items() if value is not None})


def _made(factory: Callable[..., Any], given: dict[str, Any], *args: Any) -> Any:
    try:
        return factory(*args, **given)
    except TypeError as error:
        if not given:
            raise
        raise ValueError(f"the task has {given}, which the class chosen for it does not take: {error}") from error


TARGETS = {"num_classes": "a class, a whole number or a string", "num_labels": "a list of 0 and 1 for each label"}
"""Kinds of target from which data tells each number."""


def check_told(task: str, **numbers: int | None) -> None:
    """Refuses data that does not tell a number which a task needs.

    Raises:
        ValueError: a number is None, or no whole number from 1 on.
    """
    for name, number in numbers.items():
        if not isinstance(number, Integral) or number < 1:
            tells = "none" if number is None else repr(number)
            targets = TARGETS.get(name)
            of_files = f"; those of files do where the target is {targets}" if targets else ""
            raise ValueError(
                f"{task} needs data that tells its {name}, this tells {tells}; a data module tells it as an attribute "
                f"of that name, a whole number from 1 on{of_files}"
            )


def summed_nats(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The summed cross-entropy of targets (...) that are not `IGNORE`, and how many these are, both ().

    Args:
        logits: (..., V).
        z_loss: times log^2 of each one's sum of exponentials is added.
    """
    # (..., V) to (N, V) and (...) to (N,)
    logits, flat = logits.flatten(0, -2), targets.flatten()
    nats = F.cross_entropy(logits, flat, ignore_index=IGNORE, label_smoothing=label_smoothing, reduction="sum")
    counted = targets != IGNORE
    if z_loss:
        nats = nats + z_loss * (logits.logsumexp(1).square() * counted.flatten()).sum()
    return nats, counted.sum()


def nats_and_hits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The nats of each of N targets (...) that is not `IGNORE`, and whether it is the likeliest: (N,) float32 both.

    Args:
        logits: (..., V).
    """
    counted = targets != IGNORE
    logits, targets = logits[counted], targets[counted]
    return F.cross_entropy(logits, targets, reduction="none"), (logits.argmax(dim=-1) == targets).float()


def of_all_ranks(mine: ValueT) -> list[ValueT]:
    """Each process's value, in the order of the ranks. Every process must call it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [mine]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
    return gathered
