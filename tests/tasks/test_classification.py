"""The classification task: the corpus's scores by hand, rows that count for nothing, and the figure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks import Classification
from seqlab.tasks.drawings import confusion_matrix
from trainers import loader, quiet_trainer


class Echo(nn.Module):
    """Is sure that the class is the first token, as sure as its parameter says."""

    def __init__(self, vocab_size: int, num_classes: int, seq_len: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.sure = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens: Tensor, *, pad_mask: Tensor) -> Tensor:
        return self.sure * nn.functional.one_hot(tokens[:, 0], self.num_classes).float()


def batch(first: list[int], classes: list[int]) -> LabelledBatch:
    tokens = torch.tensor(first)[:, None]
    return LabelledBatch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.tensor(classes))


def test_scores_are_the_corpuss(tmp_path: Path) -> None:
    """Six rows, of which four are right, in batches of 4, 2 and one that counts for nothing."""
    task = Classification(3, 1, vocab_size=3, model=Echo)
    batches = [batch([0, 1, 2, 0], [0, 1, 2, 1]), batch([0, 1], [0, 2]), batch([1], [IGNORE])]
    trainer = quiet_trainer(tmp_path)
    (scores,) = trainer.validate(task, loader(batches), verbose=False)
    right, wrong = (float(-torch.tensor([2.0, 0.0, 0.0]).log_softmax(0)[k]) for k in (0, 1))
    assert scores["val/loss"] == pytest.approx((4 * right + 2 * wrong) / 6)
    assert scores["val/accuracy"] == pytest.approx(4 / 6)
    # Precision and recall: 2/3 and 1; 1/2 and 1/2; 1 and 1/2.
    assert scores["val/f1"] == pytest.approx((4 / 5 + 1 / 2 + 2 / 3) / 3)
    assert scores["val/accuracy_by_length/1-8"] == pytest.approx(4 / 6)
    assert task._last_confusion is not None
    assert task._last_confusion.tolist() == [[2, 0, 0], [1, 1, 0], [0, 1, 1]]


def test_accuracy_by_length_counts_real_tokens(tmp_path: Path) -> None:
    long = LabelledBatch(
        torch.tensor([[1] * 12, [2] * 12]), torch.arange(12) < torch.tensor([[12], [3]]), torch.tensor([1, 0])
    )
    trainer = quiet_trainer(tmp_path)
    (scores,) = trainer.validate(Classification(3, 12, vocab_size=3, model=Echo), loader([long]), verbose=False)
    assert (scores["val/accuracy_by_length/1-8"], scores["val/accuracy_by_length/9-16"]) == (0, 1)


def test_a_batch_that_counts_for_nothing_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Classification(3, 1, vocab_size=3, model=Echo)
    monkeypatch.setattr(task, "log", lambda *args, **kwargs: None)
    loss = task.training_step(batch([1], [IGNORE]), 0)
    loss.backward()
    assert loss == 0 and task.model.sure.grad == 0
    assert task.training_step(batch([1, 2], [1, 1]), 0) > 0


def test_predictions_have_the_labels_names() -> None:
    task = Classification(3, 1, vocab_size=3, model=Echo)
    task._trainer = SimpleNamespace(datamodule=SimpleNamespace(labels=["a", "b", "c"]))  # type: ignore[assignment]
    some = batch([2, 0, 1], [0, 0, IGNORE])._replace(rows=torch.tensor([3, 0, -1]))
    found = task.predict_step(some, 0)
    assert [(said["row"], said["label"], said["right"]) for said in found] == [(3, "c", False), (0, "a", True)]
    wrong, right = (float(torch.tensor([2.0, 0.0, 0.0]).softmax(0)[k]) for k in (1, 0))
    assert found[0]["probabilities"] == pytest.approx({"a": wrong, "b": wrong, "c": right})
    task._trainer = SimpleNamespace(datamodule=object())  # type: ignore[assignment]
    assert task.predict_step(some, 0)[0]["label"] == "2"


def test_data_that_tells_neither_tokens_nor_features_is_refused() -> None:
    with pytest.raises(ValueError, match="needs data that tells its vocab_size or its num_features"):
        Classification(3, 1, model=Echo)


def test_the_figure_says_what_it_shows() -> None:
    page = confusion_matrix(np.array([[7, 3], [1, 95]]), ["noun", "verb"])
    assert page.count("<svg") == 1 and page.rstrip().endswith("</svg>")
    for text in ("noun", "verb", "predicted", "true", "95"):
        assert text in page
