"""The language-modelling task: its loss, its metrics through a fit, and that a model can learn by it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seqlab.attention import Attention
from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.positions import Learned
from seqlab.recurrence import GRU
from seqlab.tasks import LanguageModeling
from tasks.evaluated import trained, validated
from trainers import loader, quiet_trainer

VOCAB_SIZE, SEQ_LEN = 7, 8


class Fixed(nn.Module):
    """A model whose logits are a table looked up by the token read."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.table(tokens), {}


def _task(**options: Any) -> LanguageModeling:
    return LanguageModeling(VOCAB_SIZE, SEQ_LEN, model=Fixed, **options)


def _batch(batch_size: int = 3, length: int = SEQ_LEN) -> TokenBatch:
    """More characters than tokens."""
    tokens = torch.randint(VOCAB_SIZE, (batch_size, length + 1))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:].clone(), torch.full((batch_size,), 2 * length))


def _nats(task: LanguageModeling, batch: TokenBatch) -> Tensor:
    """Nats of each target, 0 where it is not counted."""
    log_probs = task.model(batch.tokens)[0].detach().double().log_softmax(-1)
    nats = -log_probs.gather(2, batch.targets.clamp(min=0)[..., None])[..., 0]
    return nats.where(batch.targets != IGNORE, 0)


def test_losses_and_scores_are_means_over_counted_targets(tmp_path: Path) -> None:
    task, batches = _task(), [_batch(2), _batch(5)]
    batches[1].targets[:, :3] = IGNORE
    nats = torch.cat([_nats(task, batch) for batch in batches])
    assert trained(task, batches[1]).item() == pytest.approx(float(nats[2:].sum()) / 25, rel=1e-5)
    loss = float(nats.sum()) / (2 * 8 + 5 * 5)
    bits = float(nats.sum()) / math.log(2)
    expected = {"loss": loss, "perplexity": math.exp(loss), "bits_per_char": bits / (7 * 2 * SEQ_LEN)}
    for stage in ("validate", "test"):
        trainer = quiet_trainer(tmp_path)
        (result,) = getattr(trainer, stage)(task, loader(batches), verbose=False)
        said = {name.partition("/")[2]: value for name, value in result.items()}
        assert {name: said[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        assert said["loss_by_position/1-8"] == said["loss"]


def test_the_loss_by_position_is_that_of_what_was_read_so_far() -> None:
    task, batch = _task(), _batch(3, 20)
    batch.targets[0, :9] = IGNORE
    result, nats = validated(task, [batch]), _nats(task, batch)
    for name, (start, end, count) in {"1-8": (0, 8, 16), "9-16": (8, 16, 23), "17-32": (16, 20, 12)}.items():
        expected = float(nats[:, start:end].sum()) / count
        assert result[f"val/loss_by_position/{name}"] == pytest.approx(expected, rel=1e-5)


def test_prediction_is_the_surprise_of_each_target(tmp_path: Path) -> None:
    task, batch = _task(), _batch()
    batch.targets[0, 0] = IGNORE
    predictions: Any = quiet_trainer(tmp_path).predict(task, loader([batch]))
    (said,), nats = predictions, _nats(task, batch).tolist()
    assert [row["nats"] for row in said] == [pytest.approx(row, rel=1e-5) for row in (nats[0][1:], *nats[1:])]


@pytest.mark.parametrize("mixer", [Attention, GRU])
def test_a_small_model_learns_a_sequence_by_heart(mixer: Any, tmp_path: Path) -> None:
    tokens = torch.randint(16, (1, 65))
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.tensor([64]))
    model = partial(DecoderLM, d_model=32, num_layers=1, mixer=mixer, positions=Learned)
    task = LanguageModeling(16, 64, model=model, lr=1e-2, warmup_steps=10, weight_decay=0.0)
    trainer = quiet_trainer(tmp_path, max_steps=100)
    trainer.fit(task, loader([batch]))
    assert trainer.callback_metrics["train/loss"] < 0.01


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"max_steps": 3}, 3),
        ({"max_epochs": 2}, 2 * 5),
        ({"max_epochs": 2, "accumulate_grad_batches": 2}, 2 * 3),
        ({"max_epochs": 2, "limit_train_batches": 4}, 2 * 4),
        ({"max_epochs": 2, "limit_train_batches": 0.4}, 2 * 2),
        ({"max_epochs": 1, "max_steps": 100}, 5),
    ],
)
def test_the_cosine_ends_with_the_fit(options: dict[str, Any], steps: int, tmp_path: Path) -> None:
    class Batches(L.LightningDataModule):
        def train_dataloader(self) -> DataLoader[TokenBatch]:
            return loader([_batch(1) for _ in range(5)])

    task = _task(lr=0.5, warmup_steps=1, min_lr_ratio=0.125)
    rates: list[float] = []
    note = LambdaCallback(on_before_optimizer_step=lambda *now: rates.append(now[-1].param_groups[0]["lr"]))
    trainer = quiet_trainer(tmp_path, callbacks=[note], **options)
    trainer.fit(task, datamodule=Batches())
    assert trainer.global_step == len(rates) == steps
    assert rates[:2] == pytest.approx([0.25, 0.5])
    assert task.lr_schedulers().get_last_lr()[0] == pytest.approx(0.5 * 0.125)


def test_an_end_that_is_not_known_keeps_the_peak(tmp_path: Path) -> None:
    task = _task(lr=0.5, warmup_steps=1)

    def stop(trainer: L.Trainer, *_: object) -> None:
        trainer.should_stop = trainer.global_step == 12

    trainer = quiet_trainer(tmp_path, max_epochs=-1, callbacks=[LambdaCallback(on_train_batch_end=stop)])
    trainer.fit(task, loader([_batch(1)] * 5))
    assert trainer.global_step == 12
    assert task.lr_schedulers().get_last_lr() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "got 0.0"),
        ({"warmup_steps": -1}, "-1"),
        ({"min_lr_ratio": 1.5}, "1.5"),
        ({"z_loss": -1}, "z_loss must be at least 0, got -1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _task(**options)


def test_the_z_loss_by_hand() -> None:
    """In training alone; of a target that is not counted, nothing."""
    task, batch = _task(), _batch(1, 3)
    batch.targets[0, 1] = IGNORE
    plain, scores = task.loss(batch)[0], task.evaluate(batch)["loss_by_position"][0]
    task.z_loss = 0.5
    log_sums = task.model(batch.tokens)[0][0].logsumexp(-1)
    torch.testing.assert_close(task.loss(batch)[0], plain + 0.5 * (log_sums[0] ** 2 + log_sums[2] ** 2))
    assert torch.equal(task.evaluate(batch)["loss_by_position"][0], scores)
