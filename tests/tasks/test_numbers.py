"""Multi-label classification and regression: scores by hand and scikit-learn's, over unequal batches and pads."""

from __future__ import annotations

from functools import partial
from math import exp, log

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor, nn

from seqlab.batch import LabelledBatch
from seqlab.tasks import MultilabelClassification, Regression
from tasks.evaluated import trained, validated


class Echo(nn.Module):
    """Its logits are the features, of each frame or of the first."""

    def __init__(self, num_features: int, num_labels: int, seq_len: int, by_frame: bool = True) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.num_labels, self.by_frame = num_labels, by_frame

    def forward(self, inputs: Tensor, *, pad_mask: Tensor) -> Tensor:
        return self.factor * (inputs if self.by_frame else inputs[:, 0, : self.num_labels])


def multilabel(by_frame: bool = True) -> MultilabelClassification:
    return MultilabelClassification(2, 2, 20, model=partial(Echo, by_frame=by_frame))


def frames(logits: Tensor, targets: Tensor, lengths: list[int]) -> LabelledBatch:
    """At pads and where `lengths` has 0 the targets are not a number; such a row has one real frame all the same."""
    numbers = torch.arange(logits.shape[1])
    hidden = numbers >= torch.tensor(lengths)[:, None]
    mask = numbers < torch.tensor(lengths).clamp(min=1)[:, None]
    return LabelledBatch(logits, mask, targets.masked_fill(hidden[..., None], torch.nan))


def test_scores_by_hand() -> None:
    """Logits 3, -1, -2, 1 for the labels 1, 1, 0, 0: by falling probability right, wrong, right, wrong."""
    one = frames(torch.tensor([[[3.0, -1], [-2, 1], [9, 9]]]), torch.tensor([[[1.0, 1], [0, 0], [0, 0]]]), [2])
    losses = [log(1 + exp(x)) for x in (-3, 1, -2, 1)]
    assert validated(multilabel(), [one]) == pytest.approx(
        {
            "val/loss": sum(losses) / 4,
            "val/loss_per_frame": sum(losses) / 2,
            "val/f1": 1 / 2,
            "val/average_precision": (1 / 1 + 2 / 3) / 2,
            "val/loss_by_length/1-8": sum(losses) / 4,
            "val/f1_by_length/1-8": 1 / 2,
        }
    )


def test_scores_are_the_corpuss_and_scikit_learns() -> None:
    batches = []
    for lengths in [[3, 12, 7], [1], [0], [12, 2]]:
        logits = 2 * torch.randn(len(lengths), 12, 2)
        batches.append(frames(logits, (logits + 2 * torch.randn(logits.shape) > 0.5).float(), lengths))
    found = validated(multilabel(), batches)
    real = [one.targets.isfinite() for one in batches]
    logits = torch.cat([one.inputs[some] for one, some in zip(batches, real, strict=True)])
    targets = torch.cat([one.targets[some] for one, some in zip(batches, real, strict=True)])
    long = [(one.pad_mask.sum(1) > 8)[:, None, None].expand_as(some) for one, some in zip(batches, real, strict=True)]
    of_long = torch.cat([one[some] for one, some in zip(long, real, strict=True)])
    assert len(targets) == 2 * (3 + 12 + 7 + 1 + 12 + 2)
    nats = -(targets * logits.sigmoid().log() + (1 - targets) * (-logits).sigmoid().log())
    expected = {
        "val/loss": nats.mean().item(),
        "val/loss_per_frame": 2 * nats.mean().item(),
        "val/f1": f1_score(targets, logits > 0),
        "val/average_precision": average_precision_score(targets, logits),
    }
    for name, some in (("1-8", ~of_long), ("9-16", of_long)):
        expected[f"val/loss_by_length/{name}"] = nats[some].mean().item()
        expected[f"val/f1_by_length/{name}"] = f1_score(targets[some], logits[some] > 0)
    assert found == pytest.approx(expected, rel=1e-5)


def test_labels_of_whole_sequences() -> None:
    targets = torch.tensor([[1.0, 0], [torch.nan, torch.nan]])
    one = LabelledBatch(torch.tensor([[[2.0, -1]] * 9, [[5.0, 5]] * 9]), torch.ones(2, 9, dtype=torch.bool), targets)
    loss = (log(1 + exp(-2)) + log(1 + exp(-1))) / 2
    scores = {"val/loss": loss, "val/loss_per_frame": 2 * loss, "val/loss_by_length/9-16": loss}
    scores |= {"val/f1": 1, "val/f1_by_length/9-16": 1, "val/average_precision": 1}
    assert validated(multilabel(by_frame=False), [one]) == pytest.approx(scores)
    with pytest.raises(ValueError, match=r"Echo gives \(2, 9, 2\), but the targets are \(2, 2\); a Tagger labels each"):
        validated(multilabel(), [one])


def test_pads_of_frames_teach_nothing_and_are_not_predicted() -> None:
    logits, targets = torch.tensor([[[3.0, -1], [-2, 1]]]), torch.tensor([[[1.0, 1], [0, 0]]])
    expected = nn.BCEWithLogitsLoss()(logits[:, :1], targets[:, :1])
    assert trained(multilabel(), frames(logits, targets, [1])).item() == pytest.approx(expected.item(), rel=1e-6)
    (said,) = multilabel().predict_step(frames(logits, targets, [1]), 0)
    assert said["probabilities"] == [pytest.approx((1 / (1 + (-logits[0, 0]).exp())).tolist())]
    assert said["nats"] == pytest.approx([2 * expected.item()])
    (whole,) = multilabel().predict_step(frames(logits, targets, [2])._replace(rows=torch.tensor([7])), 0)
    assert whole["row"] == 7 and torch.tensor(whole["probabilities"]).shape == (2, 2)


def regression() -> Regression:
    return Regression(2, 20, model=partial(Echo, by_frame=False))


def numbers(said: list[float], true: list[float], length: int) -> LabelledBatch:
    inputs = torch.tensor(said).float()[:, None, None].repeat(1, length, 2)
    return LabelledBatch(inputs, torch.ones(len(said), length, dtype=torch.bool), torch.tensor(true).float())


def test_scores_of_numbers_are_the_corpuss() -> None:
    batches = [numbers([1, 2, 3], [1, 3, 5], 4), numbers([0], [4], 12), numbers([9], [torch.nan], 4)]
    scores = {"val/loss": (0 + 1 + 4 + 16) / 4, "val/mean_absolute_error": (0 + 1 + 2 + 4) / 4}
    scores |= {"val/loss_by_length/1-8": 5 / 3, "val/loss_by_length/9-16": 16}
    assert validated(regression(), batches) == pytest.approx(scores)


def test_numbers_count_and_are_predicted_where_there_is_a_target() -> None:
    assert trained(regression(), numbers([1, 2, 7], [1, 4, torch.nan], 3)) == 2
    numbered = numbers([1, 2, 5], [0, 0, 0], 3)._replace(rows=torch.tensor([4, 1, -1]))
    assert regression().predict_step(numbered, 0) == [
        {"row": 4, "number": 1, "squared_error": 1},
        {"row": 1, "number": 2, "squared_error": 4},
    ]
    for targets in (numbered.targets.long(), numbered.targets[:, None]):
        with pytest.raises(ValueError, match="regression needs one number per sequence, but this data has classes"):
            regression().predict_step(numbered._replace(targets=targets), 0)
