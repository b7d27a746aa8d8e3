"""Base class of every task: its model, training and scoring."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from numbers import Integral
from typing import Any, cast

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import IGNORE
from seqlab.nn.mixture_of_experts import balance
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


class Task(L.LightningModule):
    """A model, its optimiser, and its learning rate schedule after a linear warm-up. A subclass implements `loss`,
    `scores`, `evaluate`, which computes the score updates of a batch, and `predictions`.

    Args:
        lr: peak learning rate, above 0.
        weight_decay: weight decay of the parameters that `groups` selects for it.
        warmup_steps: linear warm-up in optimiser steps.
        optimizer: called with the parameter groups and lr.
        schedule: learning rate schedule after the warm-up.
        groups: rule that splits the parameters into groups; called with weight_decay.
        betas: passed to `optimizer`; None = its default.
        min_lr_ratio: passed to `schedule`; None = its default.
        each_length: report scores for each single length or position instead of for 1 to 8, 9 to 16 and so on.

    Raises:
        ValueError: an option is out of range, or the optimiser or the schedule does not take it.

    Attributes:
        chooses_one: whether the logits at a position are scores of mutually exclusive choices, such as tokens.
        loss_in_bar: whether Lightning's progress bar shows the training loss, for which each step waits for the device.
        shown: names of the scores shown in the progress bar.
        score_names: names of all scores that `log_scores` may log, with * for any length bucket. It is not inherited:
            a subclass that does not define it may log any name.
        buckets: length buckets of the scores.
        scored: metrics of the running evaluation.
        tokens_per_step: divisor of a batch's summed loss where the number of losses in the step is not known in
            advance (`TokensPerStep`); None = the number of losses in the batch.
        begins_step: whether the batch is the first of its optimiser step.
        num_tokens: (), real tokens or frames in the last training batch, summed over all ranks.
    """

    chooses_one = True
    loss_in_bar = True
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
        """Lets the strategy distribute the model over processes, if it does that."""
        if isinstance(self.trainer.strategy, SpreadStrategy):
            self.trainer.strategy.spread(self.model)

    @abstractmethod
    def loss(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Sum and number of a training batch's losses, both (). The training loss is their quotient."""

    @abstractmethod
    def scores(self, split: str) -> dict[str, Metric]:
        """New metrics for split "val" or "test", by name. A metric that computes several numbers names each."""

    @abstractmethod
    def evaluate(self, batch: Any) -> dict[str, Any]:
        """Arguments of each metric's `update` for a batch, by name: one value, or a tuple of several."""

    def losses(self, batch: Any) -> Tensor:
        """Loss of each counted target of a batch, (N,), whose mean over a split is its loss."""
        return cast(Tensor, self.evaluate(batch)["loss"])

    @abstractmethod
    def predictions(self, batch: Any) -> list[dict[str, Any]]:
        """Predictions for each row of a batch, as JSON-serialisable values by name."""

    def log_scores(self, split: str, found: dict[str, Any]) -> None:
        """Logs the scores computed over all batches, by name."""
        names = vars(type(self)).get("score_names", ("*",))
        assert all(any(fnmatchcase(name, one) for one in names) for name in found), f"{[*found]} are not all in {names}"
        for name, value in found.items():
            self.log(f"{split}/{name}", value.float(), prog_bar=name in self.shown)

    def setup(self, stage: str) -> None:
        # Lightning restores a checkpoint before it converts the weights, which would round float64 weights.
        self.trainer.precision_plugin.convert_module(self)
        # Else a GPU computes recurrences and convolutions in TF32, and the layers beside them in float32.
        torch.backends.cudnn.allow_tf32 = torch.get_float32_matmul_precision() != "highest"

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        total, count = self.loss(batch)
        ranks = DataParallel() if self._trainer is None else data_parallel(self._trainer)
        read = getattr(batch, "num_tokens", torch.zeros_like(count))
        totals, counts, self.num_tokens = ranks.sum(total.detach(), count, read)
        self.num_counted = counts
        # A rank with nothing left in an epoch's last batch receives a batch without counted targets.
        counts = counts.clamp(min=1)
        self.log("train/loss", totals / counts, prog_bar=self.loss_in_bar)
        # The ranks' gradients are averaged; this gives every token the same weight, whichever rank has it.
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
        """Clips sharded and replicated gradients alike. Logs the gradient norm when clipping by norm.

        Raises:
            ValueError: a fused optimiser unscales the gradients itself in 16-mixed, so they cannot be clipped.
        """
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        add_up(weights)
        if not gradient_clip_val:
            return
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        if scaled and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise ValueError(
                f"gradients of {type(optimizer).__name__} with fused: true cannot be clipped in 16-mixed; remove fused "
                "or trainer.gradient_clip_val"
            )
        if gradient_clip_algorithm == "value":
            clip_by_value(weights, gradient_clip_val)
        else:
            self.log("train/grad_norm", clip_by_norm(weights, gradient_clip_val))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if (largest := balance(self.model, data_parallel(self.trainer).sum)) is not None:
            self.log("train/expert_load_max", largest)

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
        # New metrics for each evaluation: they start empty, and the precision plugin does not cast their sums.
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
        """`predictions` of the real rows, each with its index in the split as "row" where that is known."""
        said = self.predictions(batch)
        if batch.rows is None:
            return said
        return [{"row": row, **one} for row, one in zip(batch.rows.tolist(), said, strict=True) if row >= 0]

    def new_optimizer(self) -> Optimizer:
        """A new optimiser for the trainable parameters.

        Raises:
            ValueError: the optimiser or the parameter grouping does not fit the model.
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
        """Optimiser steps of the whole fit; None if only a time limit ends it.

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
    """Binds the options that are not None to a factory. The result can be pickled, as spawned processes require."""
    return partial(_made, factory, {name: value for name, value in options.items() if value is not None})


def _made(factory: Callable[..., Any], given: dict[str, Any], *args: Any) -> Any:
    try:
        return factory(*args, **given)
    except TypeError as error:
        if not given:
            raise
        raise ValueError(f"the task sets {given}, which the chosen class does not accept: {error}") from error


TARGETS = {"num_classes": "a class, a whole number or a string", "num_labels": "a list of 0 and 1 for each label"}
"""Target type from which a data module derives each number."""


def check_told(task: str, **numbers: int | None) -> None:
    """Checks that the data module has set each number that a task needs.

    Raises:
        ValueError: a number is None, or not an integer of at least 1.
    """
    for name, number in numbers.items():
        if not isinstance(number, Integral) or number < 1:
            targets = TARGETS.get(name)
            of_files = f"; data modules of files set it if the target is {targets}" if targets else ""
            raise ValueError(
                f"{task} needs a data module whose {name} is a whole number of at least 1, got "
                f"{'none' if number is None else repr(number)}{of_files}"
            )


def summed_nats(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of the targets (...) that are not `IGNORE`, and their number, both ().

    Args:
        logits: (..., V).
        z_loss: weight of the added log^2 of the softmax normaliser of each counted target.
    """
    # (..., V) to (N, V) and (...) to (N,)
    logits, flat = logits.flatten(0, -2), targets.flatten()
    nats = F.cross_entropy(logits, flat, ignore_index=IGNORE, label_smoothing=label_smoothing, reduction="sum")
    if z_loss:
        nats = nats + z_loss * squared_log_z(logits, flat)
    return nats, (targets != IGNORE).sum()


def squared_log_z(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum () of log^2 Z, Z the softmax normaliser of logits (..., V), over the targets (...) that are not `IGNORE`."""
    return (logits.logsumexp(-1).square() * (targets != IGNORE)).sum()


def nats_and_hits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Nats of each of the N targets (...) that are not `IGNORE`, given logits (..., V), and 1 if it is the likeliest,
    else 0; (N,) both."""
    counted = targets != IGNORE
    logits, targets = logits[counted], targets[counted]
    return F.cross_entropy(logits, targets, reduction="none"), (logits.argmax(dim=-1) == targets).float()
