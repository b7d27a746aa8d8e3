"""The multi-label task: scores by hand and scikit-learn's, over unequal batches, pads and what counts for nothing."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor, nn

from seqlab.batch import LabelledBatch
from seqlab.tasks import MultilabelClassification
from trainers import loader, quiet_trainer


class Echo(nn.Module):
    """Its logits are the features, of each frame or of the first."""

    def __init__(self, num_features: int, num_labels: int, seq_len: int, by_frame: bool = True) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.by_frame = by_frame

    def forward(self, inputs: Tensor, *, pad_mask: Tensor) -> Tensor:
        return self.factor * (inputs if self.by_frame else inputs[:, 0])


def batch(logits: Tensor, targets: Tensor, lengths: list[int]) -> LabelledBatch:
    """At pads and where `lengths` has 0 the targets are not a number; such a row has one real frame all the same."""
    frames = torch.arange(logits.shape[1])
    hidden = frames >= torch.tensor(lengths)[:, None]
    mask = frames < torch.tensor(lengths).clamp(min=1)[:, None]
    return LabelledBatch(logits, mask, targets.masked_fill(hidden[..., None], torch.nan))


def validated(batches: list[LabelledBatch], folder: Path, **options: bool) -> dict[str, float]:
    task = MultilabelClassification(2, 2, 20, model=lambda *sizes: Echo(*sizes, **options))
    trainer = quiet_trainer(folder)
    (scores,) = trainer.validate(task, loader(batches), verbose=False)
    return dict(scores)


def test_scores_by_hand(tmp_path: Path) -> None:
    """Logits 3, -1, -2, 1 for the labels 1, 1, 0, 0: by falling probability right, wrong, right, wrong."""
    one = batch(torch.tensor([[[3.0, -1], [-2, 1], [9, 9]]]), torch.tensor([[[1.0, 1], [0, 0], [0, 0]]]), [2])
    losses = [log(1 + exp(x)) for x in (-3, 1, -2, 1)]
    assert validated([one], tmp_path) == pytest.approx(
        {
            "val/loss": sum(losses) / 4,
            "val/loss_per_frame": sum(losses) / 2,
            "val/f1": 1 / 2,
            "val/average_precision": (1 / 1 + 2 / 3) / 2,
            "val/loss_by_length/1-8": sum(losses) / 4,
            "val/f1_by_length/1-8": 1 / 2,
        }
    )


def test_scores_are_the_corpuss_and_scikit_learns(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(4)
    lengths = [[3, 12, 7], [1], [0], [12, 2]]
    batches = []
    for some in lengths:
        logits = 2 * torch.randn(len(some), 12, 2, generator=draw)
        targets = (logits + 2 * torch.randn(logits.shape, generator=draw) > 0.5).float()
        batches.append(batch(logits, targets, some))
    found = validated(batches, tmp_path)
    real = [one.targets.isfinite() for one in batches]
    logits, targets = (
        torch.cat([getattr(one, field)[some] for one, some in zip(batches, real, strict=True)])
        for field in ("inputs", "targets")
    )
    assert len(targets) == 2 * (3 + 12 + 7 + 1 + 12 + 2)
    nats = -(targets * logits.sigmoid().log() + (1 - targets) * (-logits).sigmoid().log())
    of_long = torch.cat(
        [
            (one.pad_mask.sum(1) > 8)[:, None, None].expand_as(some)[some]
            for one, some in zip(batches, real, strict=True)
        ]
    )
    assert found == pytest.approx(
        {
            "val/loss": nats.mean().item(),
            "val/loss_per_frame": nats.sum().item() / (3 + 12 + 7 + 1 + 12 + 2),
            "val/f1": f1_score(targets, logits > 0),
            "val/average_precision": average_precision_score(targets, logits),
            "val/loss_by_length/1-8": nats[~of_long].mean().item(),
            "val/loss_by_length/9-16": nats[of_long].mean().item(),
            "val/f1_by_length/1-8": f1_score(targets[~of_long], logits[~of_long] > 0),
            "val/f1_by_length/9-16": f1_score(targets[of_long], logits[of_long] > 0),
        },
        rel=1e-5,
    )


def test_labels_of_whole_sequences(tmp_path: Path) -> None:
    targets = torch.tensor([[1.0, 0], [torch.nan, torch.nan]])
    one = LabelledBatch(torch.tensor([[[2.0, -1]] * 9, [[5.0, 5]] * 9]), torch.ones(2, 9, dtype=torch.bool), targets)
    loss = (log(1 + exp(-2)) + log(1 + exp(-1))) / 2
    assert validated([one], tmp_path, by_frame=False) == pytest.approx(
        {
            "val/loss": loss,
            "val/loss_per_frame": 2 * loss,
            "val/loss_by_length/9-16": loss,
            "val/f1": 1,
            "val/f1_by_length/9-16": 1,
            "val/average_precision": 1,
        }
    )
    with pytest.raises(ValueError, match=r"Echo gives \(2, 9, 2\), but the targets are \(2, 2\); a Tagger labels each"):
        validated([one], tmp_path)


def test_pads_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = MultilabelClassification(2, 2, 20, model=Echo)
    monkeypatch.setattr(task, "log", lambda *args, **kwargs: None)
    logits, targets = torch.tensor([[[3.0, -1], [-2, 1]]]), torch.tensor([[[1.0, 1], [0, 0]]])
    expected = nn.BCEWithLogitsLoss()(logits[:, :1], targets[:, :1])
    assert task.training_step(batch(logits, targets, [1]), 0).item() == pytest.approx(expected.item(), rel=1e-6)
    loss = task.training_step(batch(logits, targets, [0]), 0)
    loss.backward()
    assert loss == 0 and task.model.factor.grad == 0
    (said,) = task.predict_step(batch(logits, targets, [1]), 0)
    assert said["probabilities"] == [pytest.approx((1 / (1 + (-logits[0, 0]).exp())).tolist())]
    assert said["nats"] == pytest.approx([2 * expected.item()])
    (whole,) = task.predict_step(batch(logits, targets, [2])._replace(rows=torch.tensor([7])), 0)
    assert whole["row"] == 7 and torch.tensor(whole["probabilities"]).shape == (2, 2)


def test_data_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="multi-label classification needs data that tells its num_labels"):
        MultilabelClassification(2, None, 20, model=Echo)  # type: ignore[arg-type]
