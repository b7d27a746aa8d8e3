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
from trainers import loader, quiet_trainer

VOCAB_SIZE, SEQ_LEN = 7, 8


class Fixed(nn.Module):
    """A model whose logits are a table looked up by the token read."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self.table(tokens), {}


def _task(monkeypatch: pytest.MonkeyPatch | None = None, **options: Any) -> LanguageModeling:
    task = LanguageModeling(VOCAB_SIZE, SEQ_LEN, **options)
    if monkeypatch is not None:
        monkeypatch.setattr(task, "log", lambda *args, **kwargs: None, raising=False)
    return task


def _batch(batch_size: int = 3) -> TokenBatch:
    tokens = torch.randint(VOCAB_SIZE, (batch_size, SEQ_LEN + 1))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:].clone(), torch.full((batch_size,), 2 * SEQ_LEN))


def test_the_loss_is_the_mean_over_counted_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    task, batch = _task(monkeypatch, model=Fixed), _batch()
    batch.targets[0, 2:] = IGNORE
    batch.targets[2, 0] = IGNORE
    log_probs = task.model(batch.tokens)[0].log_softmax(-1)
    nats = [
        -log_probs[b, t, batch.targets[b, t]].item()
        for b in range(3)
        for t in range(SEQ_LEN)
        if batch.targets[b, t] != IGNORE
    ]
    assert len(nats) == 3 * SEQ_LEN - 7
    assert task.training_step(batch, 0).item() == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_nothing_to_predict_is_a_finite_loss_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    task, batch = _task(monkeypatch), _batch()
    batch.targets.fill_(IGNORE)
    loss = task.training_step(batch, 0)
    loss.backward()
    assert loss.item() == 0.0
    gradients = [parameter.grad for parameter in task.parameters() if parameter.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)


def test_validation_is_the_corpus(tmp_path: Path) -> None:
    """Batches of different sizes, ignored targets, and more characters than tokens."""
    task = _task(model=Fixed)
    batches = [_batch(2), _batch(5)]
    batches[1].targets[:, :3] = IGNORE
    trainer = quiet_trainer(tmp_path)
    for stage in ("val", "test"):
        run = trainer.validate if stage == "val" else trainer.test
        (result,) = run(task, loader(batches), verbose=False)
        log_probs = [task.model(batch.tokens)[0].detach().double().log_softmax(-1) for batch in batches]
        nats = [
            -log_prob.gather(-1, batch.targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)[batch.targets != IGNORE]
            for log_prob, batch in zip(log_probs, batches, strict=True)
        ]
        total, count = float(torch.cat(nats).sum()), len(torch.cat(nats))
        assert count == 2 * 8 + 5 * 5
        assert result[f"{stage}/loss"] == pytest.approx(total / count, rel=1e-5)
        assert result[f"{stage}/perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
        assert result[f"{stage}/bits_per_char"] == pytest.approx(total / math.log(2) / (7 * 2 * SEQ_LEN), rel=1e-5)
        assert result[f"{stage}/loss_by_position/1-8"] == result[f"{stage}/loss"]


def test_the_loss_by_position_is_that_of_what_was_read_so_far(tmp_path: Path) -> None:
    task = _task(model=Fixed)
    tokens = torch.randint(VOCAB_SIZE, (3, 21))
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:].clone(), torch.full((3,), 20))
    batch.targets[0, :9] = IGNORE
    (result,) = quiet_trainer(tmp_path).validate(task, loader([batch]), verbose=False)
    nats = -task.model(batch.tokens)[0].log_softmax(-1).gather(2, batch.targets.clamp(min=0)[..., None])[..., 0]
    nats = nats.detach().where(batch.targets != IGNORE, 0)
    for name, (start, end, count) in {"1-8": (0, 8, 16), "9-16": (8, 16, 23), "17-32": (16, 20, 12)}.items():
        expected = float(nats[:, start:end].sum()) / count
        assert result[f"val/loss_by_position/{name}"] == pytest.approx(expected, rel=1e-5)


def test_prediction_is_the_surprise_of_each_target(tmp_path: Path) -> None:
    task, batch = _task(model=Fixed), _batch()
    batch.targets[0, 0] = IGNORE
    predictions: Any = quiet_trainer(tmp_path).predict(task, loader([batch]))
    (said,) = predictions
    log_probs = task.model(batch.tokens)[0].log_softmax(-1)
    assert [len(row["nats"]) for row in said] == [SEQ_LEN - 1, SEQ_LEN, SEQ_LEN]
    for row, place, found in ((1, 2, said[1]["nats"][2]), (0, 3, said[0]["nats"][2])):
        assert found == pytest.approx(-log_probs[row, place, batch.targets[row, place]].item(), rel=1e-5)


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

    task = _task(model=Fixed, lr=0.5, warmup_steps=1, min_lr_ratio=0.125)
    rates: list[float] = []
    note = LambdaCallback(on_before_optimizer_step=lambda *now: rates.append(now[-1].param_groups[0]["lr"]))
    trainer = quiet_trainer(tmp_path, callbacks=[note], **options)
    trainer.fit(task, datamodule=Batches())
    assert trainer.global_step == len(rates) == steps
    assert rates[0] == pytest.approx(0.25)
    assert rates[1] == pytest.approx(0.5)
    assert task.lr_schedulers().get_last_lr()[0] == pytest.approx(0.5 * 0.125)


def test_an_end_that_is_not_known_keeps_the_peak(tmp_path: Path) -> None:
    task = _task(model=Fixed, lr=0.5, warmup_steps=1)

    def stop(trainer: L.Trainer, *_: object) -> None:
        trainer.should_stop = trainer.global_step == 12

    trainer = quiet_trainer(tmp_path, max_epochs=-1, callbacks=[LambdaCallback(on_train_batch_end=stop)])
    trainer.fit(task, loader([_batch(1)] * 5))
    assert trainer.global_step == 12
    assert task.lr_schedulers().get_last_lr() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lr": 0.0}, "got 0.0"), ({"warmup_steps": -1}, "-1"), ({"min_lr_ratio": 1.5}, "1.5")],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _task(**options)


def test_the_z_loss_by_hand() -> None:
    """In training alone; of a target that is not counted, nothing."""
    torch.manual_seed(0)
    plain, ours = (LanguageModeling(5, 4, model=partial(DecoderLM, d_model=8, num_layers=1)) for _ in range(2))
    ours.load_state_dict(plain.state_dict())
    ours.z_loss = 0.5
    batch = TokenBatch(torch.tensor([[1, 2, 3]]), torch.tensor([[2, IGNORE, 4]]), torch.ones(1))
    log_sums = plain.model(batch.tokens)[0][0].exp().sum(-1).log()
    expected = plain.loss(batch)[0] + 0.5 * (log_sums[0] ** 2 + log_sums[2] ** 2)
    torch.testing.assert_close(ours.loss(batch)[0], expected)
    assert torch.equal(ours.evaluate(batch)["loss_by_position"][0], plain.evaluate(batch)["loss_by_position"][0])
    with pytest.raises(ValueError, match="z_loss must be at least 0, got -1"):
        LanguageModeling(5, 4, z_loss=-1)
