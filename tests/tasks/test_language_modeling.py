"""Language modelling and whole answers: losses, scores and predictions by hand, and the schedule of a fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor, nn
from torch.utils.data import DataLoader

from seqlab.batch import IGNORE, TokenBatch
from seqlab.tasks import Answering, LanguageModeling
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


def test_the_z_loss_by_hand() -> None:
    """In training alone; of a target that is not counted, nothing."""
    task, batch = _task(), _batch(1, 3)
    batch.targets[0, 1] = IGNORE
    plain, scores = task.loss(batch)[0], task.evaluate(batch)["loss_by_position"][0]
    task.z_loss = 0.5
    log_sums = task.model(batch.tokens)[0][0].logsumexp(-1)
    torch.testing.assert_close(task.loss(batch)[0], plain + 0.5 * (log_sums[0] ** 2 + log_sums[2] ** 2))
    assert torch.equal(task.evaluate(batch)["loss_by_position"][0], scores)


class Successor(nn.Module):
    """Says that each token is followed by its number and one."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.eye = nn.Parameter(torch.eye(vocab_size).roll(1, dims=1))

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.eye[tokens], {}


def test_answers_by_hand() -> None:
    """Batches of unequal size; a wrong target that does not count, one answer half right, a row of nothing."""
    tokens = torch.arange(9).expand(4, 9).clone()
    targets = tokens + 1
    targets[0, :5] = IGNORE
    targets[1, :5], targets[1, 7] = IGNORE, 0
    targets[2, 2:] = IGNORE
    targets[3] = IGNORE
    some = TokenBatch(tokens, targets, torch.ones(4))
    more = TokenBatch(tokens[:1], targets[:1].where(tokens[:1] < 8, 0), torch.ones(1))
    found = validated(Answering(10, 9, model=Successor), [some, more])
    each = validated(Answering(10, 9, model=Successor, each_length=True), [some, more])
    said = Answering(10, 9, model=Successor).predictions(some)
    assert [its["right"] for its in said[:3]] == [True, False, True] and said[1]["answer"] == [6, 7, 8, 9]
    assert found["val/exact_match"] == 2 / 4
    assert found["val/exact_match_by_length/1-8"] == 1.0
    assert found["val/exact_match_by_length/9-16"] == pytest.approx(1 / 3)
    lengths = {name.rpartition("/")[2] for name in each if "exact_match_by_length" in name}
    assert lengths == {"2", "9"} and each["val/exact_match_by_length/9"] == pytest.approx(1 / 3)
    assert found["val/accuracy"] == pytest.approx((4 + 3 + 2 + 3) / (4 + 4 + 2 + 4))
