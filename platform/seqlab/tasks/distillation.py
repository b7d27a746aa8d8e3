"""Distillation: a language model that learns from the distributions of a trained one, its teacher, and from the text.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.batch import IGNORE, TokenBatch
from seqlab.models.kind import kind_of
from seqlab.tasks.language_modeling import LanguageModeling, logits_of
from seqlab.tasks.task import squared_log_z, summed_nats


class Distillation(LanguageModeling):
    """Language modelling of a student that also learns from a teacher, the trained language model of a run. The loss of
    a token in training is (1 - share) cross-entropy + share tau^2 KL(p || q), with p and q the distributions of teacher
    and student at temperature tau (Hinton, Vinyals & Dean 2015, "Distilling the knowledge in a neural network",
    section 2). All scores, `val/loss` among them, are those of `LanguageModeling`.

    Only a fit reads the teacher. It is no part of the student: its weights and costs are neither stored nor counted.
    Its blocks must be seqlab's or torch's own.

    Args:
        vocab_size: vocabulary size; set by the data module.
        seq_len: training sequence length in tokens; set by the data module.
        teacher: run id, unique id prefix, run name or checkpoint path; its vocabulary must be that of the data.
        temperature: tau, by which the logits of both are divided.
        share: weight of the teacher, from 0 to 1.
        options: further options of `LanguageModeling`; `z_loss` is added whole, whatever the share.

    Raises:
        ValueError: an option is out of range.
    """

    score_names = LanguageModeling.score_names

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        *,
        teacher: str,
        temperature: float = 1.0,
        share: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(vocab_size, seq_len, **options)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, got {share}")
        self.vocab_size = vocab_size
        self.teacher = teacher
        self.temperature = temperature
        self.share = share

    @cached_property
    def taught_by(self) -> Any:
        """Frozen model of the teacher, read when first used. A cached property is no submodule.

        Raises:
            ValueError: the run cannot be loaded, is no language model, or has another vocabulary than the data.
        """
        from seqlab.trained.load import load_run
        from seqlab.trained.same_vocabulary import change_of

        with torch.random.fork_rng(devices=[]):
            run = load_run(self.teacher)
        kind = kind_of(run.model)
        if kind is None or kind.reads != "prompts":
            raise ValueError(f"the teacher {self.teacher} is a {type(run.model).__name__}; accepted: a language model")
        data = getattr(self._trainer, "datamodule", None) or self
        tokenizer = None if run.tokenizer is None else run.tokenizer.to_dict()
        if changed := change_of({"tokenizer": tokenizer, "told": {"vocab_size": run.model.vocab_size}}, data):
            raise ValueError(f"the teacher {self.teacher} was trained with another vocabulary: {changed}")
        return run.model.requires_grad_(False)

    def prepare_data(self) -> None:
        if self.trainer.state.fn == "fit":
            _ = self.taught_by  # a wrong one is refused before the run begins

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self.trainer.precision_plugin.convert_module(self.taught_by)

    def on_fit_start(self) -> None:
        self.taught_by.to(self.device)

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        student, teacher = self._logits(batch), self.taught_by
        with torch.no_grad():
            taught = logits_of(teacher, batch)

        def loss(said: Tensor, expected: Tensor, targets: Tensor) -> Tensor:
            logits = student.logits(said)
            with torch.no_grad():
                expected = taught.logits(expected)
            divergence = summed_divergence(expected, logits, targets, self.temperature)
            mixed = (1 - self.share) * summed_nats(logits, targets)[0] + self.share * divergence
            return mixed + self.z_loss * squared_log_z(logits, targets) if self.z_loss else mixed

        total = student.summed(loss, taught.said, batch.targets) + self.nats_ahead(batch, student)
        return total, (batch.targets != IGNORE).sum()


def summed_divergence(teacher: Tensor, student: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Sum () of tau^2 KL(p || q) in nats over the targets (...) that are not `IGNORE`, with p and q the softmax of the
    logits (..., V) of teacher and student, divided by the temperature tau. tau^2 keeps the size of the gradient."""
    p, q = (F.log_softmax(logits / temperature, dim=-1) for logits in (teacher, student))
    divergence = F.kl_div(q, p, reduction="none", log_target=True).sum(-1)  # (..., V) to (...)
    return temperature**2 * (divergence * (targets != IGNORE)).sum()
